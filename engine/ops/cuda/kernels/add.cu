// Additions to the residual stream, a block per row, 16-byte accesses. With a norm the parts are
// read and summed twice, the second time from L1 or L2, in the same order: the same bits.
#include "engine/ops/cuda/kernels/add.h"

#include "gpu/reductions.h"

namespace baton::engine::cuda {
namespace {

__device__ __forceinline__ float4 Plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Elements [offset, offset + 4) of the parts' sum, column those of the bias.
__device__ __forceinline__ float4 SumOfParts(const Addition& addition, std::size_t offset,
                                             int column) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int part = 0; part < addition.num_parts; ++part) {
    const float* from = addition.parts + part * addition.part_stride + offset;
    const float4 values = *reinterpret_cast<const float4*>(from);
    sum = part == 0 ? values : Plus(sum, values);
  }
  if (addition.bias == nullptr) return sum;
  return Plus(sum, *reinterpret_cast<const float4*>(addition.bias + column));
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    AddBlockPerRow(Addition addition, int hidden, float* __restrict__ x) {
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * hidden;
  for (int i = threadIdx.x * 4; i < hidden; i += kThreads * 4) {
    float4* to = reinterpret_cast<float4*>(x + begin + i);
    *to = Plus(*to, SumOfParts(addition, begin + i, i));
  }
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    AddNormedBlockPerRow(Addition addition, int hidden, float* __restrict__ x) {
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * hidden;
  float squares = 0.0f;
  for (int i = threadIdx.x * 4; i < hidden; i += kThreads * 4) {
    const float4 y = SumOfParts(addition, begin + i, i);
    squares += y.x * y.x + y.y * y.y + y.z * y.z + y.w * y.w;
  }
  const float mean = gpu::BlockSum<kThreads>(squares) / static_cast<float>(hidden);
  const float scale = rsqrtf(mean + addition.eps);
  for (int i = threadIdx.x * 4; i < hidden; i += kThreads * 4) {
    const float4 y = SumOfParts(addition, begin + i, i);
    const float4 weight = *reinterpret_cast<const float4*>(addition.norm_weight + i);
    float4* to = reinterpret_cast<float4*>(x + begin + i);
    *to = Plus(*to, make_float4(y.x * scale * weight.x, y.y * scale * weight.y,
                                y.z * scale * weight.z, y.w * scale * weight.w));
  }
}

}  // namespace

cudaError_t AddToResidual(const Addition& addition, int num_rows, int hidden, float* x,
                          cudaStream_t stream) {
  if (num_rows < 0 || hidden <= 0 || hidden % 4 != 0 || addition.num_parts < 0 ||
      addition.part_stride % 4 != 0 || (addition.num_parts > 0 && addition.parts == nullptr) ||
      (addition.num_parts == 0 && addition.bias == nullptr)) {
    return cudaErrorInvalidValue;
  }
  if (num_rows == 0) return cudaSuccess;
  constexpr int kThreads = 256;
  const gpu::LaunchShape shape{.grid = dim3(num_rows), .block = dim3(kThreads), .stream = stream};
  if (addition.norm_weight == nullptr) {
    return gpu::Launch(AddBlockPerRow<kThreads>, shape, addition, hidden, x);
  }
  return gpu::Launch(AddNormedBlockPerRow<kThreads>, shape, addition, hidden, x);
}

}  // namespace baton::engine::cuda
