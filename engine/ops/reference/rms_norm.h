#pragma once
#include <span>

namespace baton::engine::reference {

// Scales a row to unit RMS: out[i] = x[i] * weight[i] / sqrt(mean(x^2) + eps).
//   x, weight, out: [hidden_size]; x and out may alias.
// Source: Zhang & Sennrich 2019 (arXiv:1910.07467).
void RmsNormRow(std::span<const float> x, std::span<const float> weight, float eps, float* out);

}  // namespace baton::engine::reference
