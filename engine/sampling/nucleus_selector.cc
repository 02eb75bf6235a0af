#include "engine/sampling/nucleus_selector.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>

namespace baton::engine {
namespace {

// Buckets by exponent and five bits of mantissa: 3 % wide. Positive floats order like their bits.
constexpr int kDroppedBits = 18;
constexpr std::size_t kNumBuckets = (0x3F800000u >> kDroppedBits) + 1;  // the last holds 1.0

std::size_t BucketOf(float weight) {
  return std::min<std::size_t>(std::bit_cast<std::uint32_t>(weight) >> kDroppedBits,
                               kNumBuckets - 1);
}

// The greater the key, the better the token: higher weight, then lower id.
std::uint64_t KeyOf(float weight, std::size_t id) {
  return std::uint64_t{std::bit_cast<std::uint32_t>(weight)} << 32 |
         (0xFFFFFFFFu - static_cast<std::uint32_t>(id));
}

}  // namespace

std::span<const std::int32_t> NucleusSelector::Select(std::span<const float> weights,
                                                      double needed) {
  masses_.assign(kNumBuckets, 0.0);
  for (const float weight : weights) masses_[BucketOf(weight)] += weight;
  double reached = 0.0;
  std::size_t cut_bucket = kNumBuckets - 1;
  while (cut_bucket > 0 && reached + masses_[cut_bucket] < needed) reached += masses_[cut_bucket--];

  keys_.clear();
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (BucketOf(weights[id]) == cut_bucket) keys_.push_back(KeyOf(weights[id], id));
  }
  std::sort(keys_.begin(), keys_.end(), std::greater<>());
  std::uint64_t cut_key = 0;
  for (const std::uint64_t key : keys_) {
    cut_key = key;
    reached += std::bit_cast<float>(static_cast<std::uint32_t>(key >> 32));
    if (reached >= needed) break;
  }

  tokens_.clear();
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] > 0.0f && KeyOf(weights[id], id) >= cut_key) {
      tokens_.push_back(static_cast<std::int32_t>(id));
    }
  }
  return tokens_;
}

}  // namespace baton::engine
