#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace baton::engine {

// Finds the best few of many scores without sorting them all. Scratch memory is kept between calls.
// Not thread-safe.
class TopCandidates {
 public:
  // Ids of the `count` highest of `scores`, best first, ties to the lowest id; all of them when
  // count >= scores.size(). No score may be NaN. One pass that mostly compares with the worst kept
  // score, plus O(count log count). The span is valid until the next call.
  std::span<const std::int32_t> Select(std::span<const float> scores, int count);

 private:
  std::vector<std::uint64_t> keys_;
  std::vector<std::int32_t> ids_;
};

}  // namespace baton::engine
