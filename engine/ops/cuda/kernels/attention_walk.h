#pragma once
#include "engine/ops/cuda/kernels/attention_tile.h"

// The walk of a block of threads over tiles of keys: one tile is computed with while the next is
// being copied, with one barrier a tile.
namespace baton::engine::cuda {

template <class T, int kDim>
struct TileBuffers {
  static constexpr int kKeys = TileKeys(kDim);
  KvTile<T, kDim> tiles[2];
  unsigned bad[2][kKeys / 32];  // keys of the tile whose values were not finite
};

// Positions that the packed rows [first, first + count) of a sequence see: all of [begin, end)
// together, [highest_first, lowest_last] each.
struct SeenRange {
  int begin, end;
  int highest_first, lowest_last;

  static __device__ __forceinline__ SeenRange Of(const SequenceRows& rows, int group, int window,
                                                 int first, int count) {
    const int last_row = min(first + count, rows.num_rows * group) - 1;
    SeenRange seen;
    seen.lowest_last = rows.start_position + first / group;
    const int highest_last = rows.start_position + last_row / group;
    seen.begin = FirstVisible(window, seen.lowest_last);
    seen.highest_first = FirstVisible(window, highest_last);
    seen.end = highest_last + 1;
    return seen;
  }
  // Whether a tile holds a position of [begin, end) that some row does not see.
  __device__ __forceinline__ bool InPart(int base, int keys) const {
    return min(base + keys, end) - 1 > lowest_last || max(base, begin) < highest_first;
  }
};

// Calls use(tile, base, bad) for each tile of [begin, end), which is not empty and lies in what
// `loader` loads, in order; `bad` is null where all rows see all of the tile that was loaded.
// Before the first, ready() when the copies are done that the caller has started. The caller's
// threads have left the buffers (a barrier).
template <int kThreads, class T, int kDim, class Ready, class Use>
__device__ __forceinline__ void WalkTiles(TileBuffers<T, kDim>& buffers,
                                          KvLoader<T, kDim, kThreads>& loader,
                                          const SeenRange& seen, int begin, int end,
                                          const Ready& ready, const Use& use) {
  constexpr int kKeys = TileKeys(kDim);
  int base = begin / kKeys * kKeys;
  loader.LookUp(base);
  loader.Load(buffers.tiles[0]);
  gpu::CopyAsyncCommit();
  if (base + kKeys < end) loader.LookUp(base + kKeys);
  if (threadIdx.x < kKeys / 32) buffers.bad[0][threadIdx.x] = 0;
  gpu::CopyAsyncWait<0>();
  __syncthreads();
  ready();
  for (int now = 0; base < end; base += kKeys, now ^= 1) {
    gpu::CopyAsyncWait<0>();
    __syncthreads();  // this tile is there, and the other buffer has been read by all
    if (base + kKeys < end) {
      loader.Load(buffers.tiles[now ^ 1]);
      gpu::CopyAsyncCommit();
      if (base + 2 * kKeys < end) loader.LookUp(base + 2 * kKeys);
      if (threadIdx.x < kKeys / 32) buffers.bad[now ^ 1][threadIdx.x] = 0;
    }
    const bool in_part = seen.InPart(base, kKeys);
    if (in_part) {
      RemoveNonFinite<T, kDim, kThreads>(buffers.tiles[now], buffers.bad[now]);
      __syncthreads();
    }
    use(buffers.tiles[now], base, in_part ? buffers.bad[now] : nullptr);
  }
}

}  // namespace baton::engine::cuda
