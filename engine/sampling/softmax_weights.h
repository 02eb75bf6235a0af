#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace baton::engine {

// Index of the largest value, the lowest of equals; 0 when all are -inf. No value may be NaN.
std::int32_t ArgMax(std::span<const float> values);

// Replaces NaN by -inf and +inf by the largest finite float, so that logits are in order and their
// differences are never inf - inf.
void Sanitize(std::span<float> logits);

// Probabilities relative to the best token's, of a whole vocabulary, with sums from which a token
// is found without walking all of them. Memory is kept between calls. Not thread-safe.
// The exponential is computed here from float operations in one fixed order, good to 2e-7 of its
// value, instead of by the C library, whose last bit differs between machines: a request that moves
// must go on with the same tokens.
class SoftmaxWeights {
 public:
  // weight[i] = exp((logits[i] - best) / temperature); `best` is the largest logit and finite,
  // temperature > 0. Weights below 1e-37 become 0.
  void Compute(std::span<const float> logits, float best, float temperature);

  std::span<const float> weights() const { return weights_; }
  double total() const { return total_; }
  // The token at which the running sum in id order first exceeds `uniform` * total().
  std::int32_t Find(double uniform) const;

 private:
  std::vector<float> weights_;
  std::vector<double> block_sums_;  // of kBlock weights each
  double total_ = 0.0;
};

}  // namespace baton::engine
