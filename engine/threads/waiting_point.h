#pragma once
#include <atomic>
#include <chrono>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton::engine {

// Where threads wait until something holds that other threads bring about: a thread looks for it a
// short while, then sleeps. What is waited for are conditions over std::atomic variables, written
// and read with the default order, sequential consistency: either the sleeper sees the change, or
// Notify sees the sleeper. Thread-safe.
class WaitingPoint {
 public:
  // Returns once `holds()` is true; false when it is not after `spin` and then `timeout`.
  template <class Condition>
  bool Wait(const Condition& holds, absl::Duration spin, absl::Duration timeout) {
    if (SpinUntil(holds, spin)) return true;
    absl::MutexLock lock(&mutex_);
    num_sleeping_.fetch_add(1);
    const bool held = mutex_.AwaitWithTimeout(absl::Condition(&holds), timeout);
    num_sleeping_.fetch_sub(1);
    return held;
  }

  // To be called after every change that may make a condition true.
  void Notify() {
    // Conditions of sleepers are looked at anew when the mutex is let go.
    if (num_sleeping_.load() > 0) absl::MutexLock wake(&mutex_);
  }

 private:
  template <class Condition>
  static bool SpinUntil(const Condition& holds, absl::Duration spin) {
    if (holds()) return true;
    if (spin <= absl::ZeroDuration()) return false;
    const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(spin);
    do {
      for (int i = 0; i < 16; ++i) {
        Pause();
        if (holds()) return true;
      }
    } while (std::chrono::steady_clock::now() < until);
    return false;
  }

  static void Pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  absl::Mutex mutex_;
  std::atomic<int> num_sleeping_{0};
};

}  // namespace baton::engine
