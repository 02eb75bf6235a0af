#pragma once
#include <cuda_runtime_api.h>

#include "engine/ops/cuda/kernels/device_batch.h"

namespace baton::engine::cuda {

// The rows of the vocabulary that one tensor-parallel rank holds: tokens [begin, end).
struct VocabularySlice {
  int begin;
  int end;
};

// x[r, :] = scale * table[tokens[r] - begin, :], and zeros where the token is not in the slice, so
// that the sum over all ranks is the embedding. Filling rows are left alone.
//   table: [end - begin, hidden] of T (__nv_bfloat16, __half, float); x: [num_rows, hidden] float;
//   hidden a multiple of 8; table and x at multiples of 16 bytes
// Moves hidden * (sizeof(T) + 4) bytes per row.
template <class T>
cudaError_t Embed(const DeviceBatch& batch, const T* table, VocabularySlice slice, float scale,
                  int hidden, float* x, cudaStream_t stream);

}  // namespace baton::engine::cuda
