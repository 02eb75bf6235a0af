// Merges the results of a row's splits in the order of their positions, a thread four columns of a
// head; reads 4 * dim + 8 bytes a row, head and split, mostly from L2, four splits ahead.
#include "engine/ops/cuda/kernels/attention_tile.h"

namespace baton::engine::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads) MergeSplitsThreadPerColumns(AttentionArguments<T> a) {
  const int threads_per_head = a.head_dim / 4, heads = kThreads / threads_per_head;
  const int in_block = static_cast<int>(threadIdx.x) / threads_per_head;
  const int head = static_cast<int>(blockIdx.y) * heads + in_block;
  if (in_block >= heads || head >= a.num_heads) return;
  const int column = static_cast<int>(threadIdx.x) % threads_per_head * 4;

  const int num_rows = a.plan.counts->merge_rows;
  for (int i = static_cast<int>(blockIdx.x); i < num_rows; i += static_cast<int>(gridDim.x)) {
    const MergeRow row = a.plan.merge[i];
    float m = -CUDART_INF_F, l = 0.0f;
    float4 o{};
#pragma unroll 4
    for (int split = 0; split < row.splits; ++split) {
      const std::size_t at = static_cast<std::size_t>(row.unit + split) * a.num_heads + head;
      const float2 later = a.partial_max_sum[at];
      const float4 values = *reinterpret_cast<const float4*>(a.partial + at * a.head_dim + column);
      const Merge merge = Merge::Of(m, l, later.x, later.y);
      m = merge.m, l = merge.l;
      o = float4{merge.Value(o.x, values.x), merge.Value(o.y, values.y), merge.Value(o.z, values.z),
                 merge.Value(o.w, values.w)};
    }
    const float inverse = Inverse(l);
    T* to = a.out + (static_cast<std::size_t>(row.row) * a.num_heads + head) * a.head_dim + column;
    *reinterpret_cast<uint2*>(to) =
        uint2{Pack<T>(__fmul_rn(o.x, inverse), __fmul_rn(o.y, inverse)),
              Pack<T>(__fmul_rn(o.z, inverse), __fmul_rn(o.w, inverse))};
  }
}

}  // namespace

template <class T>
cudaError_t LaunchMergeAttention(const AttentionArguments<T>& arguments, int blocks,
                                 cudaStream_t stream) {
  const int heads = kThreads / (arguments.head_dim / 4);
  return gpu::Launch(MergeSplitsThreadPerColumns<T>,
                     {.grid = dim3(blocks, CeilDivide(arguments.num_heads, heads)),
                      .block = dim3(kThreads),
                      .stream = stream},
                     arguments);
}

template cudaError_t LaunchMergeAttention(const AttentionArguments<__nv_bfloat16>&, int,
                                          cudaStream_t);
template cudaError_t LaunchMergeAttention(const AttentionArguments<__half>&, int, cudaStream_t);

}  // namespace baton::engine::cuda
