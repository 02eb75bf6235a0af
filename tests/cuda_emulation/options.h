#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda_emulation/controls.h"

namespace cuda_emulation {

// What the environment says; README.md lists the variables. Read once, at the first use.
struct Options {
  int workers = 2;  // OS threads that one grid may use
  Schedule schedule;
  std::string skip_barrier;
  std::string barriers_file;  // where to append BarriersMet at exit; empty: nowhere
  int devices = 1;
  bool has_driver = true;
  std::size_t memory_bytes = std::size_t{2} << 30;  // of each device
  int multiprocessors = 132;
  bool guard = false;  // device memory is unreachable for the host
  bool check_leaks = false;
  bool verbose = false;
  std::string faults;
};
const Options& TheOptions();

}  // namespace cuda_emulation
