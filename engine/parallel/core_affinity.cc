#include "engine/parallel/core_affinity.h"

#include <sched.h>

#include <cstddef>

#include "common/tensor_parallel.h"

namespace baton::engine {

std::vector<int> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::vector<std::vector<int>> DealOutCores(std::span<const int> cores, int world_size,
                                           int threads_per_rank) {
  const auto num_cores = static_cast<int>(cores.size());
  if (num_cores < world_size * threads_per_rank) return {};
  std::vector<std::vector<int>> runs;
  for (int rank = 0; rank < world_size; ++rank) {
    const IndexRange own = PartOf(num_cores, world_size, rank);
    runs.emplace_back(cores.begin() + own.begin, cores.begin() + own.end);
  }
  return runs;
}

bool BindThread(std::span<const int> cores) {
  if (cores.empty()) return true;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

}  // namespace baton::engine
