#pragma once

namespace cuda_emulation {

// Where in the source a barrier or a warp operation stands. (std::source_location is unknown to
// clang 14.)
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace cuda_emulation
