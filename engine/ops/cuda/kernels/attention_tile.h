#pragma once
#include <math_constants.h>

#include "engine/ops/cuda/kernels/attention_loader.h"
#include "gpu/reductions.h"
#include "gpu/vector_access.h"

// The arithmetic of attention: one warp, 16 packed rows, one tile of keys. Both kernels compute a
// row with these functions over the same tiles in the same order, and every rounding is spelled out
// (no product is left to the compiler to contract), so that they agree in every bit.
//
// Lanes hold rows as mma.sync does: lane 4g + t has rows g and g + 8 (index h = 0, 1) and of every
// 8 columns those at 2t and 2t + 1.
namespace baton::engine::cuda {

// What the 16 rows of a warp see. The last position of a row is its own; the first follows from the
// window. Few registers: they live as long as the sums.
struct WarpRows {
  int last[2];          // of row g and g + 8 of the lane
  int lowest, highest;  // of the 16
  int window;

  // Of the packed rows from `first_packed` on. Rows beyond the sequence's last see what it sees:
  // their results are not stored.
  static __device__ __forceinline__ WarpRows Of(const SequenceRows& rows, int group, int window,
                                                int first_packed) {
    const auto position = [&](int row) {
      return rows.start_position + min((first_packed + row) / group, rows.num_rows - 1);
    };
    const int row = static_cast<int>(threadIdx.x % 32 / 4);
    return {{position(row), position(row + 8)}, position(0), position(kDecodeTileRows - 1), window};
  }
  __device__ __forceinline__ bool Sees(int h, int key) const {
    return key <= last[h] && key >= FirstVisible(window, last[h]);
  }
  // Whether any row sees any of the `count` positions from `base` on; whether every row sees all.
  __device__ __forceinline__ bool SeeAny(int base, int count) const {
    return base <= highest && base + count > FirstVisible(window, lowest);
  }
  __device__ __forceinline__ bool SeeAll(int base, int count) const {
    return base >= FirstVisible(window, highest) && base + count - 1 <= lowest;
  }
};

// The softmax of 16 rows so far, times kColumns columns of the values: output = o / l.
template <int kColumns>
struct WarpSums {
  float o[kColumns / 8][4];
  float l[4];  // sum of weights, as a column of the product: [0] of row g, [2] of row g + 8
  float m[2];  // largest exponent

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[n][i] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) l[i] = 0.0f;
    m[0] = m[1] = -CUDART_INF_F;
  }
};

template <class T>
__device__ __forceinline__ std::uint32_t Pack(float low, float high) {
  const T values[2] = {gpu::FromFloat<T>(low), gpu::FromFloat<T>(high)};
  std::uint32_t bits;
  memcpy(&bits, values, sizeof(bits));
  return bits;
}

// Queries of a warp as the A operand, in registers...
template <class T, int kDim>
struct QueryRegisters {
  std::uint32_t fragments[kDim / 16][4];

  // `first_row`: the warp's first of the rows in shared memory.
  __device__ __forceinline__ void Load(const T* queries, int first_row) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int x = 0; x < kDim / 16; ++x) {
      gpu::LoadMatrix4<false>(
          fragments[x], &queries[SharedRows<kDim>::At(first_row + lane % 16, x * 2 + lane / 16)]);
    }
  }
  __device__ __forceinline__ void Get(int x, std::uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = fragments[x][i];
  }
};
// ... or left in shared memory, where registers do not suffice.
template <class T, int kDim>
struct QueriesInPlace {
  const T* queries;
  int row;

  __device__ __forceinline__ void Load(const T* all, int first_row) {
    queries = all;
    row = first_row + static_cast<int>(threadIdx.x % 16);
  }
  __device__ __forceinline__ void Get(int x, std::uint32_t (&a)[4]) const {
    const unsigned lane = threadIdx.x % 32;
    gpu::LoadMatrix4<false>(a, &queries[SharedRows<kDim>::At(row, x * 2 + lane / 16)]);
  }
};

// s = q k^T of a tile's keys. Groups of 16 keys that no row sees are left out where kMasked.
template <bool kMasked, class T, int kDim, class Queries>
__device__ __forceinline__ void Products(const KvTile<T, kDim>& tile, const Queries& queries,
                                         const WarpRows& rows, int base,
                                         float (&s)[KvTile<T, kDim>::kKeys / 8][4]) {
  const unsigned lane = threadIdx.x % 32;
  constexpr int kGroups = KvTile<T, kDim>::kKeys / 16;
#pragma unroll
  for (int n = 0; n < kGroups * 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
  }
#pragma unroll
  for (int x = 0; x < kDim / 16; ++x) {
    std::uint32_t a[4];
    queries.Get(x, a);
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      if (kMasked && !rows.SeeAny(base + n * 16, 16)) continue;
      // Rows of K are columns of B: matrices of keys 0-7 and 8-15, each of 2 x 8 elements of k.
      std::uint32_t b[4];
      gpu::LoadMatrix4<false>(
          b,
          &tile.k[SharedRows<kDim>::At(n * 16 + lane / 16 * 8 + lane % 8, x * 2 + lane / 8 % 2)]);
      gpu::Mma16x8x16<T>(s[n * 2], a, {b[0], b[1]}, s[n * 2]);
      gpu::Mma16x8x16<T>(s[n * 2 + 1], a, {b[2], b[3]}, s[n * 2 + 1]);
    }
  }
}

// Soft cap of a product, times log2(e): cap tanh(x) = cap (1 - 2 / (exp(2x) + 1)).
__device__ __forceinline__ float Capped(const ScoreScale& score, float product) {
  const float e = gpu::Exp2(__fmul_rn(product, score.tanh_scale));
  return __fmul_rn(score.cap, __fsub_rn(1.0f, __fdividef(2.0f, __fadd_rn(e, 1.0f))));
}

// Turns products into weights under the new largest exponent, and scales the sums to it.
template <bool kMasked, int kTiles, int kColumns>
__device__ __forceinline__ void Softmax(const ScoreScale& score, const WarpRows& rows, int base,
                                        float (&s)[kTiles][4], WarpSums<kColumns>& sums) {
  const int column = base + static_cast<int>(threadIdx.x % 4) * 2;
  if (score.cap != 0.0f) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = Capped(score, s[n][i]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = -CUDART_INF_F;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& x = s[n][h * 2 + j];
        const int key = column + n * 8 + j;
        if (kMasked && !rows.Sees(h, key)) x = -CUDART_INF_F;
        largest = fmaxf(largest, x);
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(gpu::kFullWarp, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(gpu::kFullWarp, largest, 2));
    const float m = fmaxf(sums.m[h], __fmul_rn(largest, score.exponent_scale));
    // Of a row that has seen nothing yet; keeps infinity from infinity.
    const float from = m == -CUDART_INF_F ? 0.0f : m;
    const float shrink = gpu::Exp2(__fsub_rn(sums.m[h], from));
    sums.m[h] = m;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& x = s[n][h * 2 + j];
        x = gpu::Exp2(__fmaf_rn(x, score.exponent_scale, -from));
      }
    }
    sums.l[h * 2] = __fmul_rn(sums.l[h * 2], shrink);
    sums.l[h * 2 + 1] = __fmul_rn(sums.l[h * 2 + 1], shrink);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      sums.o[n][h * 2] = __fmul_rn(sums.o[n][h * 2], shrink);
      sums.o[n][h * 2 + 1] = __fmul_rn(sums.o[n][h * 2 + 1], shrink);
    }
  }
}

// o += weights * values of columns [first_chunk * 8, + kColumns); l += weights * 1, so that the sum
// is of the very weights that were multiplied, rounded to T.
template <bool kMasked, class T, int kDim, int kColumns>
__device__ __forceinline__ void WeighValues(const KvTile<T, kDim>& tile, const WarpRows& rows,
                                            int base, int first_chunk,
                                            const float (&s)[KvTile<T, kDim>::kKeys / 8][4],
                                            WarpSums<kColumns>& sums) {
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t one = Pack<T>(1.0f, 1.0f);
  constexpr int kChunks = kColumns / 8;
#pragma unroll
  for (int x = 0; x < KvTile<T, kDim>::kKeys / 16; ++x) {
    if (kMasked && !rows.SeeAny(base + x * 16, 16)) continue;
    // The accumulators of two columns of tiles are the A operand as it stands.
    const std::uint32_t p[4] = {
        Pack<T>(s[2 * x][0], s[2 * x][1]), Pack<T>(s[2 * x][2], s[2 * x][3]),
        Pack<T>(s[2 * x + 1][0], s[2 * x + 1][1]), Pack<T>(s[2 * x + 1][2], s[2 * x + 1][3])};
    gpu::Mma16x8x16<T>(sums.l, p, {one, one}, sums.l);
    const unsigned key = x * 16 + lane % 16;
#pragma unroll
    for (int n = 0; n + 1 < kChunks; n += 2) {
      std::uint32_t b[4];
      gpu::LoadMatrix4<true>(b, &tile.v[SharedRows<kDim>::At(key, first_chunk + n + lane / 16)]);
      gpu::Mma16x8x16<T>(sums.o[n], p, {b[0], b[1]}, sums.o[n]);
      gpu::Mma16x8x16<T>(sums.o[n + 1], p, {b[2], b[3]}, sums.o[n + 1]);
    }
    if constexpr (kChunks % 2 == 1) {
      std::uint32_t b[2];
      gpu::LoadMatrix2<true>(b, &tile.v[SharedRows<kDim>::At(key, first_chunk + kChunks - 1)]);
      gpu::Mma16x8x16<T>(sums.o[kChunks - 1], p, b, sums.o[kChunks - 1]);
    }
  }
}

template <bool kMasked, class T, int kDim, int kColumns, class Queries>
__device__ __forceinline__ void AttendMasked(const KvTile<T, kDim>& tile, const Queries& queries,
                                             const ScoreScale& score, const WarpRows& rows,
                                             int base, int first_chunk, WarpSums<kColumns>& sums) {
  float s[KvTile<T, kDim>::kKeys / 8][4];
  Products<kMasked>(tile, queries, rows, base, s);
  Softmax<kMasked>(score, rows, base, s, sums);
  WeighValues<kMasked>(tile, rows, base, first_chunk, s, sums);
}

// Adds the tile of keys from `base` on to the sums. Rows that see none of it keep theirs bit by
// bit. Uniform in a warp.
template <class T, int kDim, int kColumns, class Queries>
__device__ __forceinline__ void Attend(const KvTile<T, kDim>& tile, const Queries& queries,
                                       const ScoreScale& score, const WarpRows& rows, int base,
                                       int first_chunk, WarpSums<kColumns>& sums) {
  constexpr int kKeys = KvTile<T, kDim>::kKeys;
  if (!rows.SeeAny(base, kKeys)) return;
  if (rows.SeeAll(base, kKeys)) {
    AttendMasked<false>(tile, queries, score, rows, base, first_chunk, sums);
  } else {
    AttendMasked<true>(tile, queries, score, rows, base, first_chunk, sums);
  }
}

// Makes NaN of the rows that see one of the `bad` keys of a tile, whose values were replaced.
template <int kKeys, int kColumns>
__device__ __forceinline__ void SpoilRows(const unsigned* bad, const WarpRows& rows, int base,
                                          WarpSums<kColumns>& sums) {
  for (int key = 0; key < kKeys; ++key) {
    if ((bad[key / 32] >> key % 32 & 1u) == 0) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (rows.Sees(h, base + key)) sums.l[h * 2] = CUDART_NAN_F;
    }
  }
}

// How the sums of a row and those of a later split become one.
struct Merge {
  float m, l;
  float keep, take;  // factors of the earlier and the later output
  bool only_later, only_earlier;

  static __device__ __forceinline__ Merge Of(float m, float l, float later_m, float later_l) {
    Merge merge;
    merge.only_earlier = later_m == -CUDART_INF_F;
    merge.only_later = !merge.only_earlier && m == -CUDART_INF_F;
    merge.m = fmaxf(m, later_m);
    const float from = merge.m == -CUDART_INF_F ? 0.0f : merge.m;
    merge.keep = gpu::Exp2(__fsub_rn(m, from));
    merge.take = gpu::Exp2(__fsub_rn(later_m, from));
    merge.l = merge.Value(l, later_l);
    return merge;
  }
  __device__ __forceinline__ float Value(float earlier, float later) const {
    const float both = __fmaf_rn(earlier, keep, __fmul_rn(later, take));
    return only_earlier ? earlier : only_later ? later : both;
  }
};

// The output of a row: o * Inverse(l).
__device__ __forceinline__ float Inverse(float l) { return __frcp_rn(l); }

}  // namespace baton::engine::cuda
