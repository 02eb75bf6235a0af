#pragma once
#include "engine/ops/cuda/kernels/attention_kernels.h"
#include "gpu/portable.h"

// How queries, keys and values come into shared memory: 16 bytes a copy, rows of kDim elements,
// whose 16-byte chunks are permuted so that ldmatrix (8 rows, one chunk each) and the copies meet
// no bank twice.
namespace baton::engine::cuda {

template <int kDim>
struct SharedRows {
  static constexpr unsigned kChunks = kDim / 8;
  // Element offset of a chunk. Eight chunks are 128 bytes, all banks: with a multiple of 8 chunks
  // in a row every row begins at bank 0 and the chunk is moved by the row; with an odd multiple of
  // 4, every second row does.
  static __device__ __forceinline__ unsigned At(unsigned row, unsigned chunk) {
    const unsigned moved = kChunks % 8 == 0 ? chunk ^ row % 8 : chunk ^ row / 2 % 4;
    return row * kDim + moved * 8;
  }
};

// K and V of kKeys positions.
template <class T, int kDim>
struct alignas(128) KvTile {
  static constexpr int kKeys = TileKeys(kDim);
  T k[kKeys * kDim];
  T v[kKeys * kDim];
};

// Copies tiles of one KV head of one sequence, gathered through its block table. Positions outside
// [begin, end) become zeros and their blocks are never looked up.
template <class T, int kDim, int kThreads>
class KvLoader {
 public:
  static constexpr int kKeys = TileKeys(kDim), kChunks = kDim / 8;
  static constexpr int kPasses = kKeys * kChunks / kThreads;
  static_assert(kKeys * kChunks % kThreads == 0);

  __device__ __forceinline__ KvLoader(const AttentionArguments<T>& arguments, int sequence,
                                      int kv_head, int begin, int end)
      : a_(arguments),
        table_(sequence * arguments.max_blocks),
        head_(kv_head * arguments.head_dim << arguments.block_shift),
        begin_(begin),
        end_(end) {}

  // Looks up the blocks of the tile that begins at `base`: the next to be loaded. Ahead of Load, so
  // that copies do not wait for the table.
  __device__ __forceinline__ void LookUp(int base) {
    base_ = base;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int position = base + Row(pass);
      blocks_[pass] = position >= begin_ && position < end_
                          ? a_.block_tables[table_ + (position >> a_.block_shift)]
                          : -1;
    }
  }
  // Starts to copy the tile looked up last. The caller commits and waits.
  __device__ __forceinline__ void Load(KvTile<T, kDim>& tile) const {
    // From a key to its value, half of a block.
    const int to_value = a_.num_kv_heads * a_.head_dim << a_.block_shift;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = Row(pass), chunk = Chunk(pass);
      const int in_block = (base_ + row) & ((1 << a_.block_shift) - 1);
      const bool valid = blocks_[pass] >= 0 && chunk * 8 < a_.head_dim;
      const T* from = a_.kv;
      if (valid) {
        from += static_cast<std::size_t>(blocks_[pass]) * (2 * to_value) + head_ +
                in_block * a_.head_dim + chunk * 8;
      }
      const unsigned at = SharedRows<kDim>::At(row, chunk);
      gpu::CopyAsync16(&tile.k[at], from, valid ? 16 : 0);
      gpu::CopyAsync16(&tile.v[at], valid ? from + to_value : from, valid ? 16 : 0);
    }
  }

 private:
  // The thread's part of a pass. Where threads are whole rows, the chunk is the same in each.
  static __device__ __forceinline__ int Row(int pass) {
    if constexpr (kThreads % kChunks == 0) {
      return static_cast<int>(threadIdx.x / kChunks) + pass * (kThreads / kChunks);
    }
    return static_cast<int>((threadIdx.x + pass * kThreads) / kChunks);
  }
  static __device__ __forceinline__ int Chunk(int pass) {
    if constexpr (kThreads % kChunks == 0) return static_cast<int>(threadIdx.x % kChunks);
    return static_cast<int>((threadIdx.x + pass * kThreads) % kChunks);
  }

  const AttentionArguments<T>& a_;
  int table_;  // index of the sequence's first block
  int head_;   // elements from a block to the head's keys
  int begin_, end_;
  int base_ = 0;
  int blocks_[kPasses];
};

// Starts to copy the queries of kRows packed rows from `first` on; zeros beyond the sequence's
// last.
template <int kRows, int kDim, int kThreads, class T>
__device__ __forceinline__ void LoadQueries(const AttentionArguments<T>& a,
                                            const SequenceRows& rows, int kv_head, int first,
                                            T* queries) {
  constexpr int kChunks = kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const int token = (first + row) / a.group, head = kv_head * a.group + (first + row) % a.group;
    const bool valid = token < rows.num_rows && chunk * 8 < a.head_dim;
    const T* from = a.q;
    if (valid) {
      from += (static_cast<std::size_t>(rows.first_row + token) * a.num_heads + head) * a.head_dim +
              chunk * 8;
    }
    gpu::CopyAsync16(&queries[SharedRows<kDim>::At(row, chunk)], from, valid ? 16 : 0);
  }
}

// Replaces what is infinite or NaN among the values of a tile by 0 and marks the keys it was found
// at in `bad`, one bit each; for tiles that some row of the block sees only in part, where 0 * NaN
// would reach it. A barrier before and after is the caller's.
template <class T, int kDim, int kThreads>
__device__ __forceinline__ void RemoveNonFinite(KvTile<T, kDim>& tile, unsigned* bad) {
  constexpr int kChunks = kDim / 8;
  constexpr unsigned kExponent = sizeof(T) == 2 && std::is_same_v<T, __half> ? 0x7c00u : 0x7f80u;
  for (int i = static_cast<int>(threadIdx.x); i < KvTile<T, kDim>::kKeys * kChunks; i += kThreads) {
    const int key = i / kChunks;
    uint4* at = reinterpret_cast<uint4*>(&tile.v[SharedRows<kDim>::At(key, i % kChunks)]);
    const uint4 bits = *at;
    bool found = false;
    for (const unsigned word : {bits.x, bits.y, bits.z, bits.w}) {
      found |= (word & kExponent) == kExponent || (word >> 16 & kExponent) == kExponent;
    }
    if (!found) continue;
    *at = uint4{0, 0, 0, 0};
    atomicOr(&bad[key / 32], 1u << key % 32);
  }
}

}  // namespace baton::engine::cuda
