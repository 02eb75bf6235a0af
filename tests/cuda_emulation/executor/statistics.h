#pragma once
#include <atomic>
#include <cstdint>

namespace cuda_emulation {

// What CountersSoFar tells.
struct Statistics {
  std::atomic<std::uint64_t> grids{0}, blocks{0}, switches{0}, collectives{0}, copies{0},
      host_waits{0}, allocations{0}, graph_launches{0};
};
Statistics& TheStatistics();

}  // namespace cuda_emulation
