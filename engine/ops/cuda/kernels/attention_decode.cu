// Attention of sequences with few rows in a step: bound by reading K and V, 4 * dim bytes a key and
// KV head, once for up to 16 packed rows (all query heads of the KV head). A block computes one
// split of the keys; four warps each compute all weights and a quarter of the output's columns, so
// that no weight crosses warps: the products are computed four times, which the tensor cores have
// time for. 64 keys are computed with while the next 64 are being copied (32 above 128 elements):
//
//   dim   shared memory   blocks an SM at 227 / 163 KiB   bytes being copied an SM
//   64    34 KiB          6 / 4                           96 / 64 KiB
//   96    51 KiB          4 / 3                           96 / 72 KiB
//   128   68 KiB          3 / 2                           96 / 64 KiB
//   256   72 KiB          3 / 2                           96 / 64 KiB
//
// where 4.8 TB/s at 1 us need 36 KiB an SM. A sequence of one split is finished at once; results of
// several go to the workspace (4 * dim + 8 bytes a row, head and split) and are merged in order by
// a second kernel, which reads them from L2.
#include "engine/ops/cuda/kernels/attention_walk.h"

namespace baton::engine::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;

template <class T, int kDim>
struct DecodeShared {
  TileBuffers<T, kDim> buffers;
  alignas(16) T queries[kDecodeTileRows * kDim];
};

// The rows of a block's result, which are whole or of a split.
template <class T, int kColumns>
__device__ __forceinline__ void StoreResult(const AttentionArguments<T>& a, const DecodeItem& item,
                                            const SequenceRows& rows, int kv_head,
                                            const WarpSums<kColumns>& sums) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const SplitRange splits = SplitsOf(rows, a.window);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int packed = item.tile * kDecodeTileRows + lane / 4 + 8 * h, token = packed / a.group;
    if (token >= rows.num_rows) continue;
    const int head = kv_head * a.group + packed % a.group;
    const int result = item.unit < 0 ? rows.first_row + token
                                     : item.unit + token * splits.count + item.split - splits.first;
    const std::size_t at = static_cast<std::size_t>(result) * a.num_heads + head;
    const float inverse = Inverse(sums.l[h * 2]);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int column = warp * kColumns + n * 8 + lane % 4 * 2;
      if (column >= a.head_dim) continue;
      const float low = sums.o[n][h * 2], high = sums.o[n][h * 2 + 1];
      if (item.unit < 0) {
        *reinterpret_cast<std::uint32_t*>(a.out + at * a.head_dim + column) =
            Pack<T>(__fmul_rn(low, inverse), __fmul_rn(high, inverse));
      } else {
        *reinterpret_cast<float2*>(a.partial + at * a.head_dim + column) = float2{low, high};
      }
    }
    if (item.unit >= 0 && warp == 0 && lane % 4 == 0) {
      a.partial_max_sum[at] = float2{sums.m[h], sums.l[h * 2]};
    }
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, kDim <= 64 ? 4 : 3)
    AttentionBlockPerSplit(AttentionArguments<T> a) {
  using Shared = DecodeShared<T, kDim>;
  constexpr int kKeys = TileKeys(kDim), kColumns = kDim / kWarps;
  Shared& shared = *gpu::DynamicSharedMemory<Shared>();
  const int kv_head = static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x / 32);
  const SplitLayout splits = SplitLayout::For(a.window);

  const int num_items = a.plan.counts->decode_items;
  for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
    const DecodeItem item = a.plan.decode[i];
    const SequenceRows rows = a.sequences[item.sequence];
    const int first_packed = item.tile * kDecodeTileRows;
    const auto seen = SeenRange::Of(rows, a.group, a.window, first_packed, kDecodeTileRows);
    const auto warp_rows = WarpRows::Of(rows, a.group, a.window, first_packed);
    const int begin = max(seen.begin, splits.Begin(item.split));
    const int end = min(seen.end, splits.Begin(item.split + 1));

    WarpSums<kColumns> sums;
    sums.Clear();
    if (begin < end) {  // another tile of the sequence may see this split when this one does not
      __syncthreads();  // all have left the shared memory of the item before
      LoadQueries<kDecodeTileRows, kDim, kThreads>(a, rows, kv_head, first_packed, shared.queries);
      KvLoader<T, kDim, kThreads> loader(a, item.sequence, kv_head, begin, end);
      QueryRegisters<T, kDim> queries;
      WalkTiles(
          shared.buffers, loader, seen, begin, end, [&] { queries.Load(shared.queries, 0); },
          [&](const KvTile<T, kDim>& tile, int base, const unsigned* bad) {
            Attend(tile, queries, a.score, warp_rows, base, warp * (kColumns / 8), sums);
            if (bad != nullptr) SpoilRows<kKeys>(bad, warp_rows, base, sums);
          });
    }
    StoreResult(a, item, rows, kv_head, sums);
  }
}

}  // namespace

template <class T, int kDim>
cudaError_t LaunchDecodeAttention(const AttentionArguments<T>& arguments, int blocks,
                                  cudaStream_t stream) {
  using Shared = DecodeShared<T, kDim>;
  // Not remembered: it holds for the current device only.
  const cudaError_t error = gpu::AllowSharedMemory(AttentionBlockPerSplit<T, kDim>, sizeof(Shared));
  if (error != cudaSuccess) return error;
  return gpu::Launch(AttentionBlockPerSplit<T, kDim>,
                     {.grid = dim3(blocks, arguments.num_kv_heads),
                      .block = dim3(kThreads),
                      .dynamic_shared_bytes = sizeof(Shared),
                      .stream = stream},
                     arguments);
}

#define BATON_INSTANTIATE(T, DIM)                                                       \
  template cudaError_t LaunchDecodeAttention<T, DIM>(const AttentionArguments<T>&, int, \
                                                     cudaStream_t);
#define BATON_INSTANTIATE_DIMS(T) \
  BATON_INSTANTIATE(T, 32)        \
  BATON_INSTANTIATE(T, 64)        \
  BATON_INSTANTIATE(T, 96)        \
  BATON_INSTANTIATE(T, 128)       \
  BATON_INSTANTIATE(T, 256)
BATON_INSTANTIATE_DIMS(__nv_bfloat16)
BATON_INSTANTIATE_DIMS(__half)

}  // namespace baton::engine::cuda
