#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace baton::engine::cuda {

// What is added to the residual stream: y[r, :] = parts[0][r, :] + parts[1][r, :] + ... + bias, in
// that order, then, where there is a norm, RmsNorm(y[r, :]) * norm_weight.
struct Addition {
  // Part i begins at parts + i * part_stride; each [num_rows, hidden] float. One part: a partial
  // sum that lacks nothing. Several: what all ranks of a tensor-parallel group gathered from each
  // other, in rank order. May be null where num_parts is 0: the bias alone.
  const float* parts = nullptr;
  int num_parts = 1;
  std::size_t part_stride = 0;         // elements, a multiple of 4
  const float* bias = nullptr;         // [hidden], or null
  const float* norm_weight = nullptr;  // [hidden], or null: no norm
  float eps = 0.0f;
};

// x[r, :] += y[r, :] as `addition` defines it. Equal in every bit on every rank that adds the same
// parts.
//   x: [num_rows, hidden] float; hidden a multiple of 4; all at multiples of 16 bytes
// Moves hidden * 4 * (num_parts + 2) bytes per row.
cudaError_t AddToResidual(const Addition& addition, int num_rows, int hidden, float* x,
                          cudaStream_t stream);

}  // namespace baton::engine::cuda
