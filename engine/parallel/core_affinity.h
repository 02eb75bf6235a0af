#pragma once
#include <span>
#include <vector>

namespace baton::engine {

// The cores that this thread may run on, in order of their number.
std::vector<int> AllowedCores();

// Cuts `cores` into one run for each of `world_size` ranks, each of at least `threads_per_rank`.
// Empty where there are too few: then nobody is bound, and the system shares them out.
std::vector<std::vector<int>> DealOutCores(std::span<const int> cores, int world_size,
                                           int threads_per_rank);

// Binds the calling thread, and those that it starts from now on, to `cores`; none: does nothing.
// False when the system refuses.
bool BindThread(std::span<const int> cores);

}  // namespace baton::engine
