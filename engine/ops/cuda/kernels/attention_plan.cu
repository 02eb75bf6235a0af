// Which block computes what. One block of threads, a thread a sequence, scans over the sequences
// for where each one's items begin; reads 12 bytes a sequence, writes 8 to 16 an item.
#include "engine/ops/cuda/kernels/attention_layout.h"
#include "gpu/portable.h"
#include "gpu/reductions.h"

namespace baton::engine::cuda {
namespace {

constexpr int kPlanThreads = 128;

// Sum of x over the threads before this one; `total` gets the sum over all. All threads call it.
__device__ __forceinline__ int ExclusiveSum(int x, int& total) {
  constexpr int kWarps = kPlanThreads / 32;
  struct Sums {
    int warp[kWarps];
  };
  Sums& sums = gpu::SharedMemory<Sums>();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int sum = x;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int below = __shfl_up_sync(gpu::kFullWarp, sum, distance);
    if (lane >= distance) sum += below;
  }
  __syncthreads();  // the sums of the call before have been read
  if (lane == 31) sums.warp[warp] = sum;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int other = 0; other < kWarps; ++other) {
    if (other < warp) before += sums.warp[other];
    total += sums.warp[other];
  }
  return before + sum - x;
}

struct Room {
  int units;
  int decode_items;
  int prefill_items;
  int merge_rows;
};

__device__ void WriteDecodeItems(const PlanView& plan, int sequence, const SequenceRows& rows,
                                 const SplitRange& splits, int tiles, int unit, int item,
                                 int merge_row) {
  const bool merged = splits.count > 1;
  for (int tile = 0; tile < tiles; ++tile) {
    for (int split = 0; split < splits.count; ++split) {
      plan.decode[item++] = {sequence, tile, splits.first + split, merged ? unit : -1};
    }
  }
  if (!merged) return;
  for (int token = 0; token < rows.num_rows; ++token) {
    plan.merge[merge_row + token] = {rows.first_row + token, unit + token * splits.count,
                                     splits.count};
  }
}

__global__ void __launch_bounds__(kPlanThreads)
    PlanAttentionThreadPerSequence(const SequenceRows* __restrict__ sequences, int num_sequences,
                                   int group, int window, int prefill_tile_rows, PlanView plan,
                                   Room room) {
  Room used{};
  for (int first = 0; first < num_sequences; first += kPlanThreads) {
    const int sequence = first + static_cast<int>(threadIdx.x);
    SequenceRows rows{};
    if (sequence < num_sequences) rows = sequences[sequence];
    const bool present = rows.num_rows > 0;
    SplitRange splits{};
    if (present) splits = SplitsOf(rows, window);

    const bool small = present && Decoded(rows.num_rows, group);
    const int wanted = small && splits.count > 1 ? splits.count * rows.num_rows : 0;
    Room total{};
    const int unit = used.units + ExclusiveSum(wanted, total.units);
    const bool decoded = small && (wanted == 0 || unit + wanted <= room.units);
    const int tiles =
        CeilDivide(rows.num_rows * group, decoded ? kDecodeTileRows : prefill_tile_rows);
    const int decode_item =
        used.decode_items + ExclusiveSum(decoded ? tiles * splits.count : 0, total.decode_items);
    const int prefill_item =
        used.prefill_items + ExclusiveSum(present && !decoded ? tiles : 0, total.prefill_items);
    const int merge_row =
        used.merge_rows + ExclusiveSum(decoded && wanted > 0 ? rows.num_rows : 0, total.merge_rows);
    used = {used.units + total.units, used.decode_items + total.decode_items,
            used.prefill_items + total.prefill_items, used.merge_rows + total.merge_rows};
    gpu::DeviceAssert(used.decode_items <= room.decode_items &&
                          used.prefill_items <= room.prefill_items &&
                          used.merge_rows <= room.merge_rows,
                      "an attention plan has no room for its batch: the batch exceeds its limits");

    if (decoded) {
      WriteDecodeItems(plan, sequence, rows, splits, tiles, unit, decode_item, merge_row);
    } else if (present) {
      // The tiles that see most come first, so that no long one is left for the end.
      for (int tile = 0; tile < tiles; ++tile) {
        plan.prefill[prefill_item + tile] = {sequence, tiles - 1 - tile};
      }
    }
  }
  if (threadIdx.x == 0) {
    *plan.counts = {used.decode_items, used.prefill_items, used.merge_rows};
  }
}

}  // namespace

bool ValidAttention(const AttentionShape& shape, const AttentionLimits& limits) {
  return shape.num_kv_heads > 0 && shape.num_heads > 0 &&
         shape.num_heads % shape.num_kv_heads == 0 && shape.head_dim > 0 &&
         shape.head_dim % 8 == 0 && TileDim(shape.head_dim) != 0 && shape.scale > 0 &&
         shape.softcap >= 0 && shape.window >= 0 && limits.max_rows > 0 &&
         limits.max_sequences > 0 && limits.max_positions > 0;
}

std::size_t AttentionPlanBytes(const AttentionShape& shape, const AttentionLimits& limits) {
  return ValidAttention(shape, limits) ? PlanSizes::For(shape, limits).bytes() : 0;
}

cudaError_t PlanAttention(const DeviceBatch& batch, const AttentionShape& shape,
                          const AttentionLimits& limits, void* plan, cudaStream_t stream) {
  if (!ValidAttention(shape, limits) || batch.num_rows > limits.max_rows ||
      batch.num_sequences > limits.max_sequences) {
    return cudaErrorInvalidValue;
  }
  const PlanSizes sizes = PlanSizes::For(shape, limits);
  const Room room{sizes.units, sizes.decode_items, sizes.prefill_items, sizes.merge_rows};
  return gpu::Launch(PlanAttentionThreadPerSequence,
                     {.grid = dim3(1), .block = dim3(kPlanThreads), .stream = stream},
                     batch.sequences, batch.num_sequences, shape.num_heads / shape.num_kv_heads,
                     shape.window, PrefillTileRows(TileDim(shape.head_dim)), sizes.View(plan),
                     room);
}

}  // namespace baton::engine::cuda
