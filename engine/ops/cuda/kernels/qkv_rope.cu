// From the product of Wqkv to attention's inputs: bias, norm per head, rotation, and the append to
// the paged cache, in one pass. A group of lanes per head, 8 elements (16 bytes) a lane; a warp
// takes as many heads as have room in it. Rotation partners are exchanged through shared memory.
#include "engine/ops/cuda/kernels/qkv_rope.h"

#include "gpu/reductions.h"
#include "gpu/vector_access.h"

namespace baton::engine::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxHeadDim = 256;  // 32 lanes of 8 elements

struct WarpElements {
  float of_warp[kWarps][kMaxHeadDim];
};

// Scales a head to unit RMS. The lanes of a warp call it together, `lanes` (a power of two) per
// head; lanes beyond the head hold zeros.
__device__ void NormalizeHead(const QkvShape& shape, const float* weight, int first, bool active,
                              int lanes, float (&values)[8]) {
  float sum = 0.0f;
#pragma unroll
  for (const float value : values) sum += value * value;
  for (int distance = lanes / 2; distance > 0; distance >>= 1) {
    sum += __shfl_xor_sync(gpu::kFullWarp, sum, distance);
  }
  if (weight == nullptr || !active) return;
  const float scale = rsqrtf(sum / static_cast<float>(shape.head_dim) + shape.norm_eps);
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = values[i] * scale * weight[first + i];
}

// Rotates elements [first, first + 8) of a head whose elements all lie in `head`.
__device__ void Rotate(const QkvShape& shape, const float* cos, const float* sin, const float* head,
                       int first, float (&values)[8]) {
  const int num_pairs = shape.rope_dim / 2;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int element = first + i;
    if (element >= shape.rope_dim) return;
    const bool is_first = shape.interleaved ? element % 2 == 0 : element < num_pairs;
    const int pair = shape.interleaved ? element / 2 : element % num_pairs;
    const int distance = shape.interleaved ? 1 : num_pairs;
    const float partner = head[is_first ? element + distance : element - distance];
    const float turned = partner * sin[pair];
    values[i] = values[i] * cos[pair] + (is_first ? -turned : turned);
  }
}

// Where head `head` of K (half 0) or V (half 1) of a row lies in the cache.
template <class T>
__device__ T* Slot(const DeviceBatch& batch, const KvView<T>& kv, int row, int half, int head) {
  const int position = batch.positions[row];
  const int* table =
      batch.block_tables + static_cast<std::size_t>(batch.row_sequence[row]) * batch.max_blocks;
  const int block = table[position / kv.block_size];
  gpu::DeviceAssert(block >= 0, "a row's slot lies in a block that its sequence does not have");
  const int offset =
      ((half * kv.num_kv_heads + head) * kv.block_size + position % kv.block_size) * kv.head_dim;
  return kv.data + block * kv.block_stride() + offset;
}

template <class T>
__global__ void __launch_bounds__(kWarps * 32)
    QkvRopeLanesPerHead(DeviceBatch batch, QkvShape shape, int lanes, const T* __restrict__ qkv,
                        const float* __restrict__ cos, const float* __restrict__ sin, KvView<T> kv,
                        T* __restrict__ q) {
  const int row = static_cast<int>(blockIdx.x);
  if (batch.row_sequence[row] < 0) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int num_heads = shape.num_heads + 2 * shape.num_kv_heads;
  const int head = (blockIdx.y * kWarps + warp) * (32 / lanes) + lane / lanes;
  const int first = lane % lanes * 8;
  const bool active = head < num_heads && first < shape.head_dim;

  float values[8] = {};
  if (active) {
    const int column = head * shape.head_dim + first;
    gpu::LoadFloats8(qkv + static_cast<std::size_t>(row) * num_heads * shape.head_dim + column,
                     values);
    for (int i = 0; i < 8 && shape.bias != nullptr; ++i) values[i] += shape.bias[column + i];
  }
  const bool is_q = head < shape.num_heads;
  const int kv_index = head - shape.num_heads;  // heads of K, then of V
  const bool is_value = kv_index >= shape.num_kv_heads;
  const float* norm = is_value ? nullptr : is_q ? shape.q_norm : shape.k_norm;
  NormalizeHead(shape, norm, first, active, lanes, values);

  float* own_head = gpu::SharedMemory<WarpElements>().of_warp[warp] + lane / lanes * lanes * 8;
#pragma unroll
  for (int i = 0; i < 8; ++i) own_head[first + i] = values[i];
  __syncwarp();
  if (!active) return;
  if (!is_value) {
    const std::size_t angles = static_cast<std::size_t>(row) * (shape.rope_dim / 2);
    Rotate(shape, cos + angles, sin + angles, own_head, first, values);
  }
  T* to;
  if (is_q) {
    to = q + (static_cast<std::size_t>(row) * shape.num_heads + head) * shape.head_dim;
  } else {
    to = Slot(batch, kv, row, is_value, is_value ? kv_index - shape.num_kv_heads : kv_index);
  }
  gpu::StoreFloats8(to + first, values);
}

bool IsComputable(const DeviceBatch& batch, const QkvShape& shape) {
  return batch.num_rows >= 0 && shape.num_heads > 0 && shape.num_kv_heads > 0 &&
         shape.head_dim > 0 && shape.head_dim % 8 == 0 && shape.head_dim <= kMaxHeadDim &&
         shape.rope_dim >= 0 && shape.rope_dim % 2 == 0 && shape.rope_dim <= shape.head_dim;
}

}  // namespace

template <class T>
cudaError_t QkvRopeAppend(const DeviceBatch& batch, const QkvShape& shape, const T* qkv,
                          const float* cos, const float* sin, const KvView<T>& kv, T* q,
                          cudaStream_t stream) {
  if (!IsComputable(batch, shape) || kv.num_kv_heads != shape.num_kv_heads ||
      kv.head_dim != shape.head_dim || kv.block_size <= 0) {
    return cudaErrorInvalidValue;
  }
  if (batch.num_rows == 0) return cudaSuccess;
  int lanes = 1;
  while (lanes * 8 < shape.head_dim) lanes *= 2;
  const int heads_per_block = kWarps * (32 / lanes);
  const int num_heads = shape.num_heads + 2 * shape.num_kv_heads;
  return gpu::Launch(
      QkvRopeLanesPerHead<T>,
      {.grid = dim3(batch.num_rows, (num_heads + heads_per_block - 1) / heads_per_block),
       .block = dim3(kWarps * 32),
       .stream = stream},
      batch, shape, lanes, qkv, cos, sin, kv, q);
}

template cudaError_t QkvRopeAppend(const DeviceBatch&, const QkvShape&, const __nv_bfloat16*,
                                   const float*, const float*, const KvView<__nv_bfloat16>&,
                                   __nv_bfloat16*, cudaStream_t);
template cudaError_t QkvRopeAppend(const DeviceBatch&, const QkvShape&, const __half*, const float*,
                                   const float*, const KvView<__half>&, __half*, cudaStream_t);
template cudaError_t QkvRopeAppend(const DeviceBatch&, const QkvShape&, const float*, const float*,
                                   const float*, const KvView<float>&, float*, cudaStream_t);

}  // namespace baton::engine::cuda
