#pragma once

namespace baton {

// Prints the place, the condition and `message` to stderr and aborts. Thread-safe.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const char* message);

}  // namespace baton

// Stops the process when an invariant of our own is broken and shared memory is in doubt; on in
// every build. Input of any kind never reaches it: that ends in a Status.
#define BATON_CHECK(condition, message)                                \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::baton::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
