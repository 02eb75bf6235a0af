// Soft cap of logits in place: a thread per 4 values.
#include "engine/ops/cuda/kernels/softcap.h"

#include <cmath>

#include "gpu/portable.h"

namespace baton::engine::cuda {
namespace {

__global__ void SoftCapThreadPer4(float cap, std::size_t count, float* __restrict__ values) {
  const std::size_t first = (static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (first + 4 <= count) {
    float4* at = reinterpret_cast<float4*>(values + first);
    const float4 v = *at;
    *at = make_float4(cap * tanhf(v.x / cap), cap * tanhf(v.y / cap), cap * tanhf(v.z / cap),
                      cap * tanhf(v.w / cap));
    return;
  }
  for (std::size_t i = first; i < count; ++i) values[i] = cap * tanhf(values[i] / cap);
}

}  // namespace

cudaError_t SoftCap(float cap, std::size_t count, float* values, cudaStream_t stream) {
  if (!(cap >= 0.0f)) return cudaErrorInvalidValue;
  if (cap == 0.0f || count == 0) return cudaSuccess;
  constexpr std::size_t kThreads = 256;
  const std::size_t blocks = (count + 4 * kThreads - 1) / (4 * kThreads);
  if (blocks > 0x7fffffffu) return cudaErrorInvalidValue;
  return gpu::Launch(
      SoftCapThreadPer4,
      {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .stream = stream}, cap,
      count, values);
}

}  // namespace baton::engine::cuda
