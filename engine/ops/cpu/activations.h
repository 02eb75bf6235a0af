#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/ops/cpu/packed_matrix.h"

namespace baton::engine::cpu {

// 8-bit parts of one quantized activation: value = scale * (128 * high + low) with high in
// [-127, 127] and low in [-64, 64). Two parts keep 14 bits and the sign of every activation at the
// price of a second pass of integer products. On SmolLM2-135M (Q4_1) log-probabilities are off by
// 0.001 in the median and 31 of 32 prompts keep all 64 greedy tokens of float arithmetic; with one
// part it is 0.07, what other 8-bit kernels have, for 1.7 times the rate of large products.
// Decoding single streams costs the same: there the weights' bytes are what counts.
inline constexpr int kPlanes = 2;

// 32 quantized activations of one row and what the epilogue of their integer dot products needs.
struct QuantizedGroup {
  float scale;                          // of one unit
  float scaled_sum;                     // scale * sum: multiplies the weights' mins
  std::int32_t sum;                     // of all 32 integers: takes the weights' offset out
  std::int32_t low_sum;                 // of the first 16
  std::int8_t values[kPlanes][kGroup];  // high parts, then low parts
};
static_assert(sizeof(QuantizedGroup) == 16 + kPlanes * kGroup);

// Rows of activations as a matrix product reads them: as float, quantized, or both. A plain view.
struct Activations {
  const float* floats = nullptr;              // [num_rows, stride]
  std::size_t stride = 0;                     // floats from one row to the next
  const QuantizedGroup* quantized = nullptr;  // [num_rows, groups]
  std::size_t groups = 0;                     // per row
  int num_rows = 0;
};

}  // namespace baton::engine::cpu
