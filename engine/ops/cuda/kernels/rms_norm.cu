// RMS norm, a block per row, 16-byte accesses. Reads each float of x twice (the second time from
// L1 or L2) and writes each result once: bound by memory at prefill, by launch latency at decode.
#include "engine/ops/cuda/kernels/rms_norm.h"

#include "gpu/reductions.h"
#include "gpu/vector_access.h"

namespace baton::engine::cuda {
namespace {

template <int kThreads, class T>
__global__ void __launch_bounds__(kThreads)
    RmsNormBlockPerRow(const float* __restrict__ x, const int* __restrict__ rows,
                       const float* __restrict__ weight, int hidden, float eps,
                       T* __restrict__ out) {
  const int from = rows == nullptr ? static_cast<int>(blockIdx.x) : rows[blockIdx.x];
  if (from < 0) return;
  const float* row = x + static_cast<std::size_t>(from) * hidden;
  float sum = 0.0f;
  for (int i = threadIdx.x * 8; i < hidden; i += kThreads * 8) {
    float values[8];
    gpu::LoadFloats8(row + i, values);
#pragma unroll
    for (const float value : values) sum += value * value;
  }
  const float scale = rsqrtf(gpu::BlockSum<kThreads>(sum) / static_cast<float>(hidden) + eps);
  T* to = out + static_cast<std::size_t>(blockIdx.x) * hidden;
  for (int i = threadIdx.x * 8; i < hidden; i += kThreads * 8) {
    float values[8], weights[8];
    gpu::LoadFloats8(row + i, values);
    gpu::LoadFloats8(weight + i, weights);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] = values[j] * scale * weights[j];
    gpu::StoreFloats8(to + i, values);
  }
}

}  // namespace

template <class T>
cudaError_t RmsNorm(const float* x, const int* rows, int num_rows, const float* weight, int hidden,
                    float eps, T* out, cudaStream_t stream) {
  if (num_rows < 0 || hidden <= 0 || hidden % 8 != 0) return cudaErrorInvalidValue;
  if (num_rows == 0) return cudaSuccess;
  constexpr int kThreads = 256;
  return gpu::Launch(RmsNormBlockPerRow<kThreads, T>,
                     {.grid = dim3(num_rows), .block = dim3(kThreads), .stream = stream}, x, rows,
                     weight, hidden, eps, out);
}

template cudaError_t RmsNorm(const float*, const int*, int, const float*, int, float,
                             __nv_bfloat16*, cudaStream_t);
template cudaError_t RmsNorm(const float*, const int*, int, const float*, int, float, __half*,
                             cudaStream_t);
template cudaError_t RmsNorm(const float*, const int*, int, const float*, int, float, float*,
                             cudaStream_t);

}  // namespace baton::engine::cuda
