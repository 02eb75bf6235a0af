#pragma once
#include <cuda_runtime_api.h>

#include "engine/ops/cuda/kernels/device_batch.h"

namespace baton::engine::cuda {

// What happens to q, k and v between their matrix product and attention. Pointers are device
// memory.
struct QkvShape {
  int num_heads;        // of q, of this rank
  int num_kv_heads;     // of this rank
  int head_dim;         // a multiple of 8, at most 256
  int rope_dim;         // even, at most head_dim: the first so many elements of a head are rotated
  bool interleaved;     // pairs (2i, 2i + 1) if true, (i, i + rope_dim / 2) if not
  const float* bias;    // [(num_heads + 2 * num_kv_heads) * head_dim], or null
  const float* q_norm;  // [head_dim], or null: no norm over the heads of q; likewise k_norm
  const float* k_norm;
  float norm_eps;
};

// Adds the bias, normalizes heads of q and k, rotates them, and writes q out and k and v into the
// batch's slots of the cache. Computes in float and rounds once. Filling rows write nothing.
//   qkv: [num_rows, (num_heads + 2 * num_kv_heads) * head_dim] of T: heads of q, then k, then v
//   cos, sin: [num_rows, rope_dim / 2]; q: [num_rows, num_heads * head_dim] of T
//   T: __nv_bfloat16, __half or float; all at multiples of 16 bytes; `kv` has the shape's KV heads
// Moves 2 * sizeof(T) bytes per element of qkv.
template <class T>
cudaError_t QkvRopeAppend(const DeviceBatch& batch, const QkvShape& shape, const T* qkv,
                          const float* cos, const float* sin, const KvView<T>& kv, T* q,
                          cudaStream_t stream);

}  // namespace baton::engine::cuda
