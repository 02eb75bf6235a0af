#pragma once
#include <cuda_runtime_api.h>

namespace baton::engine::cuda {

// Scales each row to unit RMS: out[r, :] = x[rows[r], :] * weight / sqrt(mean(x[rows[r], :]^2) +
// eps). Batch-invariant: a row does not depend on the others.
//   x: [*, hidden] float; rows: [num_rows] on the device, or null: row r itself; weight: [hidden]
//   float; out: [num_rows, hidden] of T (__nv_bfloat16, __half, float); hidden a multiple of 8
// Source: Zhang & Sennrich 2019 (arXiv:1910.07467).
template <class T>
cudaError_t RmsNorm(const float* x, const int* rows, int num_rows, const float* weight, int hidden,
                    float eps, T* out, cudaStream_t stream);

}  // namespace baton::engine::cuda
