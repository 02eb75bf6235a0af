// RMS norm, a block per row. Reads each float of x twice (the second time from L2) and writes it
// once: bound by memory at prefill, by launch latency at decode.
#include "engine/ops/cuda/kernels/rms_norm.h"

#include "gpu/reductions.h"
#include "gpu/vector_access.h"

namespace baton::engine::cuda {
namespace {

using gpu::BlockSum;

template <int kThreads, class T>
__global__ void __launch_bounds__(kThreads)
    RmsNormBlockPerRow(const float* __restrict__ x, const int* __restrict__ rows,
                       const float* __restrict__ weight, int hidden, float eps,
                       T* __restrict__ out) {
  const int from = rows == nullptr ? static_cast<int>(blockIdx.x) : rows[blockIdx.x];
  const float* row = x + static_cast<std::size_t>(from) * hidden;
  float sum = 0.0f;
  for (int i = threadIdx.x * 4; i < hidden; i += kThreads * 4) {
    const float4 v = *reinterpret_cast<const float4*>(row + i);
    sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  const float scale = rsqrtf(BlockSum<kThreads>(sum) / hidden + eps);
  T* to = out + static_cast<std::size_t>(blockIdx.x) * hidden;
  for (int i = threadIdx.x * 4; i < hidden; i += kThreads * 4) {
    const float4 v = *reinterpret_cast<const float4*>(row + i);
    const float4 w = *reinterpret_cast<const float4*>(weight + i);
    to[i] = gpu::FromFloat<T>(v.x * scale * w.x);
    to[i + 1] = gpu::FromFloat<T>(v.y * scale * w.y);
    to[i + 2] = gpu::FromFloat<T>(v.z * scale * w.z);
    to[i + 3] = gpu::FromFloat<T>(v.w * scale * w.w);
  }
}

}  // namespace

template <class T>
cudaError_t RmsNorm(const float* x, const int* rows, int num_rows, const float* weight, int hidden,
                    float eps, T* out, cudaStream_t stream) {
  if (num_rows == 0) return cudaSuccess;
  if (num_rows < 0 || hidden <= 0 || hidden % 8 != 0) return cudaErrorInvalidValue;
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
