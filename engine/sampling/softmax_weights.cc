#include "engine/sampling/softmax_weights.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

namespace baton::engine {
namespace {

constexpr std::size_t kBlock = 1024;
constexpr std::size_t kLanes = 16;

// e^x for x <= 0 without branches, so that loops over it vectorise: x = n ln 2 + r, 2^n times a
// polynomial in r. Coefficients and the split of ln 2 from Cephes (S. Moshier), expf.c.
inline float ExpOfNegative(float x) {
  constexpr float kLowest = -86.0f;             // above the smallest normal number's logarithm
  constexpr float kRoundToInteger = 0x1.8p23f;  // adding it pushes the fraction out
  const float clamped = x < kLowest ? kLowest : x;
  const float shifted = clamped * 1.44269504088896341f + kRoundToInteger;
  const float n = shifted - kRoundToInteger;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // The low bits of `shifted` are n: they become the exponent.
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000u;
  return x < kLowest ? 0.0f : p * std::bit_cast<float>(exponent);
}

double SumOf(std::span<const float> values) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  }
  for (; i < values.size(); ++i) lanes[0] += values[i];
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

std::int32_t ArgMax(std::span<const float> values) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  float best = *std::max_element(lanes, lanes + kLanes);
  for (; i < values.size(); ++i) best = std::max(best, values[i]);
  const auto found = std::find(values.begin(), values.end(), best);
  return found == values.end() ? 0 : static_cast<std::int32_t>(found - values.begin());
}

void Sanitize(std::span<float> logits) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  for (float& logit : logits) {
    const float bounded = logit > kLargest ? kLargest : logit;
    logit = bounded >= kLowest ? bounded : kLowest;  // false for NaN only
  }
}

void SoftmaxWeights::Compute(std::span<const float> logits, float best, float temperature) {
  weights_.resize(logits.size());
  float* const weights = weights_.data();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights[i] = ExpOfNegative((logits[i] - best) / temperature);
  }
  block_sums_.clear();
  total_ = 0.0;
  for (std::size_t begin = 0; begin < weights_.size(); begin += kBlock) {
    block_sums_.push_back(
        SumOf(this->weights().subspan(begin, std::min(kBlock, weights_.size() - begin))));
    total_ += block_sums_.back();
  }
}

std::int32_t SoftmaxWeights::Find(double uniform) const {
  double left = uniform * total_;
  std::size_t chosen = 0;
  bool inside = false;  // false after the loop if rounding left a rest: then the last token it is
  for (std::size_t block = 0; block < block_sums_.size() && !inside; ++block) {
    if (block_sums_[block] == 0.0) continue;
    chosen = block;
    inside = left < block_sums_[block];
    if (!inside) left -= block_sums_[block];
  }
  std::int32_t last = 0;
  const std::size_t end = std::min((chosen + 1) * kBlock, weights_.size());
  for (std::size_t i = chosen * kBlock; i < end; ++i) {
    if (weights_[i] == 0.0f) continue;
    last = static_cast<std::int32_t>(i);
    if (inside && left < weights_[i]) break;
    left -= weights_[i];
  }
  return last;
}

}  // namespace baton::engine
