#pragma once
#include <algorithm>
#include <cstddef>

#include "common/sliding_window.h"
#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/device_batch.h"

// How attention is cut into pieces; host and device compute it alike. The query heads that share a
// KV head are packed: packed row i of a sequence is query head i % group of the group, of the
// sequence's token i / group.
namespace baton::engine::cuda {

// Keys are cut into splits whose ends are fixed positions. A split is summed up by itself and then
// merged into the splits before it, by whichever kernel: that is what makes the bits of a row
// independent of the kernel. Without a window splits grow with the position, 16 of each size, since
// far rows have enough of them to fill a device and each costs workspace and merging.
struct SplitLayout {
  static constexpr int kSize = 512;  // of the first; a multiple of every key tile
  static constexpr int kPerSize = 16;
  static constexpr int kLevel = kSize * kPerSize;

  bool growing;

  static constexpr SplitLayout For(int window) { return {window == 0 || window > kLevel}; }
  // The split that `position` lies in.
  constexpr int Of(int position) const {
    if (!growing) return position / kSize;
    int level = 0;
    while (position >= kLevel << level) position -= kLevel << level++;
    return level * kPerSize + position / (kSize << level);
  }
  // First position of `split`.
  constexpr int Begin(int split) const {
    if (!growing) return split * kSize;
    const int level = split / kPerSize;
    return kLevel * ((1 << level) - 1) + split % kPerSize * (kSize << level);
  }
};

// Rows of one tensor-core tile: what a block of the decode kernel handles.
inline constexpr int kDecodeTileRows = 16;
// A sequence with at most so many packed rows, or with one token, is decoded: its keys are dealt
// out to many blocks. Others have enough rows to fill a device without that.
inline constexpr int kMaxDecodedRows = 64;
// Rows whose splits find room in the workspace; beyond that the prefill kernel takes over, to the
// same bits.
inline constexpr int kMaxSplitRows = 256;

constexpr bool Decoded(int num_rows, int group) {
  return num_rows == 1 || num_rows * group <= kMaxDecodedRows;
}
// The size of head that kernels are compiled for, or 0.
constexpr int TileDim(int head_dim) {
  for (const int dim : {32, 64, 96, 128, 256}) {
    if (head_dim <= dim) return dim;
  }
  return 0;
}
// What a warp multiplies at a time, and the packed rows of a block of the prefill kernel.
constexpr int TileKeys(int tile_dim) { return tile_dim <= 128 ? 64 : 32; }
constexpr int PrefillTileRows(int tile_dim) { return tile_dim <= 128 ? 128 : 64; }

constexpr int CeilDivide(int a, int b) { return (a + b - 1) / b; }

// The splits that any row of a sequence sees.
struct SplitRange {
  int first;
  int count;
};
constexpr SplitRange SplitsOf(const SequenceRows& rows, int window) {
  const SplitLayout layout = SplitLayout::For(window);
  const int first = layout.Of(FirstVisible(window, rows.start_position));
  return {first, layout.Of(rows.start_position + rows.num_rows - 1) - first + 1};
}

// One block's work. `unit` is the place of the sequence's first partial result in the workspace, -1
// where it has one split only; partial result (token, split) lies at unit + token * splits + split.
struct alignas(16) DecodeItem {
  int sequence;
  int tile;   // of kDecodeTileRows packed rows
  int split;  // absolute
  int unit;
};
struct alignas(8) PrefillItem {
  int sequence;
  int tile;  // of PrefillTileRows packed rows
};
// A row whose partial results [unit, unit + splits) are merged.
struct alignas(16) MergeRow {
  int row;
  int unit;
  int splits;
};
struct alignas(16) PlanCounts {
  int decode_items;
  int prefill_items;
  int merge_rows;
};

// Where the parts of a plan lie, and how many items they have room for.
struct PlanView {
  PlanCounts* counts;
  DecodeItem* decode;
  PrefillItem* prefill;
  MergeRow* merge;
};

struct PlanSizes {
  int splits;  // of a sequence
  int units;   // partial results of all heads of a row in the workspace
  int decode_items;
  int prefill_items;
  int merge_rows;

  static constexpr PlanSizes For(const AttentionShape& shape, const AttentionLimits& limits) {
    const int group = shape.num_heads / shape.num_kv_heads;
    const int tiles = CeilDivide(group, kDecodeTileRows);
    const SplitLayout layout = SplitLayout::For(shape.window);
    PlanSizes sizes{};
    sizes.splits = layout.Of(limits.max_positions - 1) + 1;
    if (!layout.growing) {
      const int seen = shape.window + kMaxDecodedRows;
      sizes.splits = std::min(sizes.splits, seen / SplitLayout::kSize + 2);
    }
    sizes.units = sizes.splits == 1 ? 0 : std::min(limits.max_rows, kMaxSplitRows) * sizes.splits;
    sizes.decode_items = (limits.max_rows + sizes.units) * tiles;
    sizes.prefill_items =
        limits.max_rows * group / PrefillTileRows(TileDim(shape.head_dim)) + limits.max_sequences;
    sizes.merge_rows = std::min(limits.max_rows, sizes.units);
    return sizes;
  }
  std::size_t bytes() const {
    return sizeof(PlanCounts) + sizeof(DecodeItem) * decode_items + sizeof(MergeRow) * merge_rows +
           sizeof(PrefillItem) * prefill_items;
  }
  PlanView View(void* plan) const {
    auto* counts = static_cast<PlanCounts*>(plan);
    auto* decode = reinterpret_cast<DecodeItem*>(counts + 1);
    auto* merge = reinterpret_cast<MergeRow*>(decode + decode_items);
    return {counts, decode, reinterpret_cast<PrefillItem*>(merge + merge_rows), merge};
  }
};

// Of a shape that every function of attention.h takes.
bool ValidAttention(const AttentionShape& shape, const AttentionLimits& limits);

}  // namespace baton::engine::cuda
