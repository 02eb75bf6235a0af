#pragma once
#include <cuda_runtime_api.h>

namespace baton::engine::cuda {

// Scales each row to unit RMS: out[r, :] = x[rows[r], :] * weight / sqrt(mean(x[rows[r], :]^2) +
// eps). Batch-invariant: a row does not depend on the others. Squares are summed in float, as a
// tree, which keeps more digits than a running sum.
//   x: [*, hidden] float; rows: [num_rows] on the device, or null: row r itself; where rows[r] is
//   negative, out[r, :] is left alone; weight: [hidden] float; out: [num_rows, hidden] of T
//   (__nv_bfloat16, __half, float); hidden a multiple of 8; all at multiples of 16 bytes
// Moves hidden * (4 + sizeof(T)) bytes per row, and the weight once.
// Source: Zhang & Sennrich 2019 (arXiv:1910.07467).
template <class T>
cudaError_t RmsNorm(const float* x, const int* rows, int num_rows, const float* weight, int hidden,
                    float eps, T* out, cudaStream_t stream);

}  // namespace baton::engine::cuda
