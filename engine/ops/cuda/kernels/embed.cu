// Embedding look-up, a block per row: each thread reads 8 elements of the table's row and writes 8
// floats. Bound by the latency of the one row at decode, by memory at prefill.
#include "engine/ops/cuda/kernels/embed.h"

#include "gpu/vector_access.h"

namespace baton::engine::cuda {
namespace {

template <int kThreads, class T>
__global__ void __launch_bounds__(kThreads)
    EmbedBlockPerRow(DeviceBatch batch, const T* __restrict__ table, VocabularySlice slice,
                     float scale, int hidden, float* __restrict__ x) {
  const int row = static_cast<int>(blockIdx.x);
  if (batch.row_sequence[row] < 0) return;
  const int token = batch.tokens[row];
  const bool inside = token >= slice.begin && token < slice.end;
  const T* from = table + static_cast<std::size_t>(inside ? token - slice.begin : 0) * hidden;
  float* to = x + static_cast<std::size_t>(row) * hidden;
  for (int i = threadIdx.x * 8; i < hidden; i += kThreads * 8) {
    float values[8] = {};
    if (inside) gpu::LoadFloats8(from + i, values);
#pragma unroll
    for (float& value : values) value *= scale;
    gpu::StoreFloats8(to + i, values);
  }
}

}  // namespace

template <class T>
cudaError_t Embed(const DeviceBatch& batch, const T* table, VocabularySlice slice, float scale,
                  int hidden, float* x, cudaStream_t stream) {
  if (batch.num_rows < 0 || hidden <= 0 || hidden % 8 != 0 || slice.begin < 0 ||
      slice.end < slice.begin) {
    return cudaErrorInvalidValue;
  }
  if (batch.num_rows == 0) return cudaSuccess;
  constexpr int kThreads = 128;
  return gpu::Launch(EmbedBlockPerRow<kThreads, T>,
                     {.grid = dim3(batch.num_rows), .block = dim3(kThreads), .stream = stream},
                     batch, table, slice, scale, hidden, x);
}

template cudaError_t Embed(const DeviceBatch&, const __nv_bfloat16*, VocabularySlice, float, int,
                           float*, cudaStream_t);
template cudaError_t Embed(const DeviceBatch&, const __half*, VocabularySlice, float, int, float*,
                           cudaStream_t);
template cudaError_t Embed(const DeviceBatch&, const float*, VocabularySlice, float, int, float*,
                           cudaStream_t);

}  // namespace baton::engine::cuda
