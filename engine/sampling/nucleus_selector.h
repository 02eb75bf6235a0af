#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace baton::engine {

// Finds the nucleus of top_p sampling (Holtzman et al. 2020, arXiv:1904.09751) without sorting a
// vocabulary: masses are counted by the leading bits of the weights, and only the bucket in which
// the cut falls is sorted. Scratch memory is kept between calls. Not thread-safe.
class NucleusSelector {
 public:
  // The smallest set of best tokens whose weights sum to at least `needed`, in id order; of equal
  // weights the lowest ids come first. All tokens of positive weight when they do not reach it.
  //   weights: in [0, 1]. The span is valid until the next call.
  std::span<const std::int32_t> Select(std::span<const float> weights, double needed);

 private:
  std::vector<double> masses_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace baton::engine
