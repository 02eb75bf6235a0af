// Attention of sequences with many rows in a step. A block computes 128 packed rows (64 of heads
// above 128 elements) of one KV head, 16 a warp, over all keys that they see: flops 4 * dim per row
// and key on the tensor cores, bytes 4 * dim per key and block, from L2 except the first time.
// A tile of 64 keys (32 above 128 elements) is used while the next one is copied.
//
// A warp keeps 16 x 64 products (32 registers a lane), 16 x dim outputs (dim / 2) and its queries
// (dim / 4) in registers; the queries stay in shared memory above 128 elements, for want of
// registers, and at 64, where that lets two blocks share an SM. At the end of a split of the keys
// the outputs are merged into those of the splits before, which lie in shared memory, a lane's own
// in its own place: 8 * dim bytes a row each 512 keys or more, some 6 % of the tile traffic.
//
//   dim   threads   shared memory   blocks an SM at 227 / 163 KiB
//   64    256        84 KiB         2 / 1
//   96    256       100 KiB         2 / 1 (registers allow 1)
//   128   256       132 KiB         1 / 1
//   256   128       162 KiB         1 / 1
#include "engine/ops/cuda/kernels/attention_walk.h"
#include "gpu/architecture.h"

namespace baton::engine::cuda {
namespace {

template <class T, int kDim>
struct PrefillShared {
  static constexpr int kRows = PrefillTileRows(kDim), kThreads = kRows / 16 * 32;
  static constexpr bool kQueriesInPlace = kDim == 64 || kDim > 128;
  TileBuffers<T, kDim> buffers;
  // Outputs of the splits before, then m and l; the queries on their way to registers before that.
  float4 outputs[kDim / 8 + 1][kThreads];
  alignas(16) T queries_in_place[kQueriesInPlace ? kRows * kDim : 8];

  __device__ T* queries() {
    return kQueriesInPlace ? queries_in_place : reinterpret_cast<T*>(outputs);
  }
};

// Two where they fit, for which registers are cut to 128 a lane; that spills above 64 elements.
template <class T, int kDim>
inline constexpr int kBlocksPerSm =
    kDim == 64 && 2 * sizeof(PrefillShared<T, kDim>) <= gpu::kSharedMemoryPerSm ? 2 : 1;

// The merged splits of a lane's rows, in its own places of shared memory.
template <int kDim, int kThreads>
class MergedSplits {
 public:
  __device__ explicit MergedSplits(float4 (*outputs)[kThreads]) : outputs_(outputs) {}

  // Merges `sums` behind the splits so far; they begin anew.
  __device__ __forceinline__ void Add(WarpSums<kDim>& sums) {
    if (any_) MergeInto(sums);
    any_ = true;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const float(&o)[4] = sums.o[n];
      outputs_[n][threadIdx.x] = float4{o[0], o[1], o[2], o[3]};
    }
    outputs_[kDim / 8][threadIdx.x] = float4{sums.m[0], sums.m[1], sums.l[0], sums.l[2]};
    sums.Clear();
  }
  // Makes `sums` those of all splits.
  __device__ __forceinline__ void Finish(WarpSums<kDim>& sums) const {
    if (any_) MergeInto(sums);
  }

 private:
  __device__ __forceinline__ void MergeInto(WarpSums<kDim>& sums) const {
    const float4 m_and_l = outputs_[kDim / 8][threadIdx.x];
    const Merge merges[2] = {Merge::Of(m_and_l.x, m_and_l.z, sums.m[0], sums.l[0]),
                             Merge::Of(m_and_l.y, m_and_l.w, sums.m[1], sums.l[2])};
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const float4 earlier = outputs_[n][threadIdx.x];
      float(&o)[4] = sums.o[n];
      o[0] = merges[0].Value(earlier.x, o[0]);
      o[1] = merges[0].Value(earlier.y, o[1]);
      o[2] = merges[1].Value(earlier.z, o[2]);
      o[3] = merges[1].Value(earlier.w, o[3]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sums.m[h] = merges[h].m;
      sums.l[h * 2] = merges[h].l;
    }
  }

  float4 (*outputs_)[kThreads];
  bool any_ = false;
};

template <class T, int kDim>
__device__ __forceinline__ void StoreOutput(const AttentionArguments<T>& a,
                                            const SequenceRows& rows, int kv_head, int first_packed,
                                            const WarpSums<kDim>& sums) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int packed = first_packed + lane / 4 + 8 * h, token = packed / a.group;
    if (token >= rows.num_rows) continue;
    const int head = kv_head * a.group + packed % a.group;
    const float inverse = Inverse(sums.l[h * 2]);
    T* to = a.out +
            (static_cast<std::size_t>(rows.first_row + token) * a.num_heads + head) * a.head_dim;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      if (column >= a.head_dim) continue;
      *reinterpret_cast<std::uint32_t*>(to + column) =
          Pack<T>(__fmul_rn(sums.o[n][h * 2], inverse), __fmul_rn(sums.o[n][h * 2 + 1], inverse));
    }
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(PrefillShared<T, kDim>::kThreads, (kBlocksPerSm<T, kDim>))
    AttentionBlockPerRowTile(AttentionArguments<T> a) {
  using Shared = PrefillShared<T, kDim>;
  using Queries =
      std::conditional_t<Shared::kQueriesInPlace, QueriesInPlace<T, kDim>, QueryRegisters<T, kDim>>;
  constexpr int kThreads = Shared::kThreads, kKeys = TileKeys(kDim);
  Shared& shared = *gpu::DynamicSharedMemory<Shared>();
  const int kv_head = static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x / 32);
  const SplitLayout splits = SplitLayout::For(a.window);

  const int num_items = a.plan.counts->prefill_items;
  for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x)) {
    const PrefillItem item = a.plan.prefill[i];
    const SequenceRows rows = a.sequences[item.sequence];
    const int first_packed = item.tile * Shared::kRows, warp_packed = first_packed + warp * 16;
    const auto seen = SeenRange::Of(rows, a.group, a.window, first_packed, Shared::kRows);
    const auto warp_rows = WarpRows::Of(rows, a.group, a.window, warp_packed);
    const bool active = warp_packed < rows.num_rows * a.group;

    __syncthreads();  // all have left the shared memory of the item before
    LoadQueries<Shared::kRows, kDim, kThreads>(a, rows, kv_head, first_packed, shared.queries());
    KvLoader<T, kDim, kThreads> loader(a, item.sequence, kv_head, seen.begin, seen.end);
    Queries queries;
    WarpSums<kDim> sums;
    sums.Clear();
    MergedSplits<kDim, kThreads> merged(shared.outputs);
    int split_end = splits.Begin(splits.Of(seen.begin) + 1);
    WalkTiles(
        shared.buffers, loader, seen, seen.begin, seen.end,
        [&] { queries.Load(shared.queries(), warp * 16); },
        [&](const KvTile<T, kDim>& tile, int base, const unsigned* bad) {
          if (base >= split_end) {
            merged.Add(sums);
            split_end = splits.Begin(splits.Of(base) + 1);
          }
          if (!active) return;
          Attend(tile, queries, a.score, warp_rows, base, 0, sums);
          if (bad != nullptr) SpoilRows<kKeys>(bad, warp_rows, base, sums);
        });
    merged.Finish(sums);
    // Read again: registers are scarce until here.
    const PrefillItem done = a.plan.prefill[i];
    const int done_packed = done.tile * Shared::kRows + static_cast<int>(threadIdx.x / 32) * 16;
    StoreOutput(a, a.sequences[done.sequence], kv_head, done_packed, sums);
  }
}

}  // namespace

template <class T, int kDim>
cudaError_t LaunchPrefillAttention(const AttentionArguments<T>& arguments, int blocks,
                                   cudaStream_t stream) {
  using Shared = PrefillShared<T, kDim>;
  // Not remembered: it holds for the current device only.
  const cudaError_t error =
      gpu::AllowSharedMemory(AttentionBlockPerRowTile<T, kDim>, sizeof(Shared));
  if (error != cudaSuccess) return error;
  return gpu::Launch(AttentionBlockPerRowTile<T, kDim>,
                     {.grid = dim3(blocks, arguments.num_kv_heads),
                      .block = dim3(Shared::kThreads),
                      .dynamic_shared_bytes = sizeof(Shared),
                      .stream = stream},
                     arguments);
}

#define BATON_INSTANTIATE(T, DIM)                                                        \
  template cudaError_t LaunchPrefillAttention<T, DIM>(const AttentionArguments<T>&, int, \
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
