#pragma once
#include <cuda_runtime_api.h>

#include "engine/ops/cuda/kernels/weight_view.h"

namespace baton::engine::cuda {

// out[r, :] = row r of `weights` as T, its columns in the order of inputs (column_order undone).
//   out: [rows, columns] of T, 16-byte aligned; T: weights.type
// Each value is the exact one, rounded to T once.
cudaError_t Dequantize(const WeightView& weights, void* out, cudaStream_t stream);

// x[t, :] = scale * row (tokens[t] - first_token) of `weights`; zeros for a token outside of
// [first_token, first_token + weights.rows), which another rank has.
//   tokens: [num_tokens] on the device; x: [num_tokens, columns] float, 16-byte aligned
cudaError_t EmbedRows(const WeightView& weights, const int* tokens, int num_tokens, int first_token,
                      float scale, float* x, cudaStream_t stream);

}  // namespace baton::engine::cuda
