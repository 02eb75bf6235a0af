#pragma once
#include <array>
#include <cstdint>

namespace baton::engine {

// Philox4x32-10, the counter-based generator of Salmon et al. 2011 ("Parallel random numbers: as
// easy as 1, 2, 3"): a bijection of `counter` under `key`, in ten rounds. A pure function.
std::array<std::uint32_t, 4> Philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

}  // namespace baton::engine
