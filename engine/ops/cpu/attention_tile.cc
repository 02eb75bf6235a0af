// Attention over one tile of 64 keys, for all queries that share a KV head. Keys are laid out
// dimension-major and values key-major in float panels, so both products are outer-product loops:
// registers hold 6 queries x 64 keys of scores, then 6 queries x 64 dimensions of output.
// Work: 2 * 64 * head_dim multiply-adds per query; widening a tile costs as much as some 6 queries.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/attention_tile.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/smooth-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::engine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
constexpr int kLanes = static_cast<int>(HWY_MIN(HWY_LANES(float), 16));
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
constexpr int kVectors = 4;  // with 6 queries: 24 of 32 registers hold sums
#else
constexpr int kVectors = 2;  // 12 of 16
#endif
constexpr int kMaxQueries = 6;

// Widens one row of `count` values.
void WidenRow(const void* row, bool half, int count, float* out) {
  if (!half) {
    std::memcpy(out, row, count * sizeof(float));
    return;
  }
  const DF df;
  const hn::Rebind<hwy::float16_t, DF> dh;
  const auto* halves = static_cast<const hwy::float16_t*>(row);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::PromoteTo(df, hn::LoadU(dh, halves + i)), df, out + i);
  }
  if (i == count) return;
  HWY_ALIGN hwy::float16_t tail[16] = {};
  HWY_ALIGN float wide[16];
  std::copy(halves + i, halves + count, tail);
  hn::Store(hn::PromoteTo(df, hn::Load(dh, tail)), df, wide);
  std::copy(wide, wide + (count - i), out + i);
}

// Writes four keys of `padded` dimensions (a multiple of 16) as columns [key, key + 4) of `keys`,
// only the first `head_dim` dimensions.
void TransposeFour(const float* const (&rows)[4], int head_dim, int key, float* keys) {
#if HWY_TARGET == HWY_SCALAR
  for (int d = 0; d < head_dim; ++d) {
    for (int i = 0; i < 4; ++i) keys[d * kKeyTile + key + i] = rows[i][d];
  }
#else
  // Interleaving works within blocks of four lanes: afterwards block b of r[j] holds dimension
  // 4b + j of the four keys.
  const DF df;
  HWY_ALIGN float turned[4][16];
  for (int d = 0; d < head_dim; d += kLanes) {
    const VF k0 = hn::LoadU(df, rows[0] + d);
    const VF k1 = hn::LoadU(df, rows[1] + d);
    const VF k2 = hn::LoadU(df, rows[2] + d);
    const VF k3 = hn::LoadU(df, rows[3] + d);
    const VF a = hn::InterleaveLower(df, k0, k2);
    const VF b = hn::InterleaveUpper(df, k0, k2);
    const VF c = hn::InterleaveLower(df, k1, k3);
    const VF e = hn::InterleaveUpper(df, k1, k3);
    hn::Store(hn::InterleaveLower(df, a, c), df, turned[0]);
    hn::Store(hn::InterleaveUpper(df, a, c), df, turned[1]);
    hn::Store(hn::InterleaveLower(df, b, e), df, turned[2]);
    hn::Store(hn::InterleaveUpper(df, b, e), df, turned[3]);
    const int count = std::min(kLanes, head_dim - d);
    for (int i = 0; i < count; ++i) {
      std::memcpy(keys + (d + i) * kKeyTile + key, turned[i % 4] + i / 4 * 4, 16);
    }
  }
#endif
}

// Keys of 16 tokens in f16, from dimension `done` on, 32 dimensions at a time: turned as pairs of
// dimensions, which halves the shuffles, then widened. Returns how many dimensions were done.
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
int TransposeSixteenHalves(const std::byte* rows, std::size_t row_bytes, int head_dim, int key,
                           float* keys) {
  int done = 0;
  for (; done + 32 <= head_dim; done += 32) {
    __m512i r[16], t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows + i * row_bytes + done * 2);
      // Within 128-bit blocks: 4 x 4 of pairs.
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]);
      const __m512i b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
      const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
      const __m512i e = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
      t[i] = _mm512_unpacklo_epi64(a, c);
      t[i + 1] = _mm512_unpackhi_epi64(a, c);
      t[i + 2] = _mm512_unpacklo_epi64(b, e);
      t[i + 3] = _mm512_unpackhi_epi64(b, e);
    }
    // Block b of t[4i + j] is now pair 4b + j of keys 4i .. 4i + 3: a 4 x 4 of blocks for each j.
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i a = _mm512_shuffle_i32x4(t[j], t[4 + j], 0x44);
      const __m512i b = _mm512_shuffle_i32x4(t[j], t[4 + j], 0xEE);
      const __m512i c = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0x44);
      const __m512i e = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0xEE);
      const __m512i pairs[4] = {_mm512_shuffle_i32x4(a, c, 0x88), _mm512_shuffle_i32x4(a, c, 0xDD),
                                _mm512_shuffle_i32x4(b, e, 0x88), _mm512_shuffle_i32x4(b, e, 0xDD)};
#pragma GCC unroll 4
      for (int b4 = 0; b4 < 4; ++b4) {
        float* out = keys + (done + 2 * (4 * b4 + j)) * kKeyTile + key;
        const __m256i even = _mm512_cvtepi32_epi16(pairs[b4]);
        const __m256i odd = _mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs[b4], 16));
        _mm512_storeu_ps(out, _mm512_cvtph_ps(even));
        _mm512_storeu_ps(out + kKeyTile, _mm512_cvtph_ps(odd));
      }
    }
  }
  return done;
}
#else
int TransposeSixteenHalves(const std::byte*, std::size_t, int, int, float*) { return 0; }
#endif

// Widens keys [i, i + count) of a run, count 4 or fewer, from dimension `from` on.
void TransposeFew(const std::byte* rows, std::size_t row_bytes, bool half, int from, int head_dim,
                  int count, int key, float* keys) {
  constexpr int kChunk = 256;  // dimensions at a time
  HWY_ALIGN float wide[4][kChunk];
  const float* const wide_rows[4] = {wide[0], wide[1], wide[2], wide[3]};
  for (int d = from; d < head_dim; d += kChunk) {
    const int dims = std::min(kChunk, head_dim - d);
    const std::size_t skip = static_cast<std::size_t>(d) * (half ? 2 : 4);
    for (int i = 0; i < count; ++i) WidenRow(rows + i * row_bytes + skip, half, dims, wide[i]);
    if (count == 4) {
      TransposeFour(wide_rows, dims, key, keys + d * kKeyTile);
      continue;
    }
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < dims; ++j) keys[(d + j) * kKeyTile + key + i] = wide[i][j];
    }
  }
}

void LoadKeyValuesImpl(const void* keys, const void* values, bool half, int first_key, int count,
                       int head_dim, const KeyValueTile& tile) {
  const int padded = PaddedHeadDim(head_dim);
  const std::size_t row_bytes = static_cast<std::size_t>(head_dim) * (half ? 2 : 4);
  const auto* key_bytes = static_cast<const std::byte*>(keys);
  const auto* value_bytes = static_cast<const std::byte*>(values);
  float* wide_values = tile.values + first_key * padded;
  if (head_dim == padded) {
    WidenRow(value_bytes, half, count * head_dim, wide_values);
  } else {
    for (int i = 0; i < count; ++i, wide_values += padded) {
      WidenRow(value_bytes + i * row_bytes, half, head_dim, wide_values);
      std::fill(wide_values + head_dim, wide_values + padded, 0.0f);
    }
  }
  for (int i = 0; i < count;) {
    const bool sixteen = half && count - i >= 16;
    const int step = sixteen ? 16 : std::min(4, count - i);
    const std::byte* rows = key_bytes + i * row_bytes;
    int done = 0;
    if (sixteen) {
      done = TransposeSixteenHalves(rows, row_bytes, head_dim, first_key + i, tile.keys);
    }
    for (int j = 0; done < head_dim && j < step; j += 4) {
      TransposeFew(rows + j * row_bytes, row_bytes, half, done, head_dim, std::min(4, step - j),
                   first_key + i + j, tile.keys);
    }
    i += step;
  }
}

// out[q, 0 .. kWidth vectors) (+)= sum over k of left[q, k] * right[k, ...]. Sums run in order of
// k, starting from what `out` holds when kAdd.
template <int kQueries, int kWidth, bool kAdd>
HWY_INLINE void OuterProductsOf(const float* left, int left_stride, const float* right,
                                int right_stride, int count, float* out, int out_stride) {
  const DF df;
  VF acc[kQueries][kWidth];
  const float* rows[kQueries];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
    rows[q] = left + q * left_stride;
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) {
      acc[q][v] = kAdd ? hn::LoadU(df, out + q * out_stride + v * kLanes) : hn::Zero(df);
    }
  }
  for (int k = 0; k < count; ++k, right += right_stride) {
    VF r[kWidth];
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) r[v] = hn::LoadU(df, right + v * kLanes);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const VF l = hn::Set(df, rows[q][k]);
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) acc[q][v] = hn::MulAdd(l, r[v], acc[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) {
      hn::StoreU(acc[q][v], df, out + q * out_stride + v * kLanes);
    }
  }
}

// The same for `columns` columns, a multiple of 16.
template <int kQueries, bool kAdd>
void OuterProducts(const float* left, int left_stride, const float* right, int right_stride,
                   int count, int columns, float* out, int out_stride) {
  constexpr int kWide = kVectors * kLanes;
  int c = 0;
  for (; c + kWide <= columns; c += kWide) {
    OuterProductsOf<kQueries, kVectors, kAdd>(left, left_stride, right + c, right_stride, count,
                                              out + c, out_stride);
  }
  for (; c < columns; c += kLanes) {
    OuterProductsOf<kQueries, 1, kAdd>(left, left_stride, right + c, right_stride, count, out + c,
                                       out_stride);
  }
}

void SoftCapScores(float* scores, int columns, float softcap) {
  const DF df;
  const VF cap = hn::Set(df, softcap);
  for (int i = 0; i < columns; i += kLanes) {
    hn::StoreU(SoftCapOf(df, hn::LoadU(df, scores + i), cap), df, scores + i);
  }
}

// Turns one row of `columns` scores, of which those in `visible` count, into weights
// exp(score - max), and brings the query's running state up to the new maximum. kColumns: 64, or
// 0 where `columns` is another multiple of 16; a whole tile unrolls and stays in registers. kAll:
// all columns are in `visible`.
template <int kColumns, bool kAll>
HWY_INLINE void SoftmaxRow(float* scores, int columns, KeyRange visible, int padded, float* max,
                           float* sum, float* out) {
  if constexpr (kColumns != 0) columns = kColumns;
  const DF df;
  const DI di;
  const VF lowest = hn::Set(df, -std::numeric_limits<float>::infinity());
  const auto before = hn::Set(di, visible.begin - 1);
  const auto end = hn::Set(di, visible.end);
  VF largest = lowest;
#pragma GCC unroll 4
  for (int i = 0; i < columns; i += kLanes) {
    VF score = hn::LoadU(df, scores + i);
    if constexpr (!kAll) {
      const auto key = hn::Iota(di, i);
      const auto seen = hn::RebindMask(df, hn::And(hn::Lt(key, end), hn::Gt(key, before)));
      score = hn::IfThenElse(seen, score, lowest);
      hn::StoreU(score, df, scores + i);
    }
    largest = hn::Max(largest, score);
  }
  const float tile_max = hn::GetLane(hn::MaxOfLanes(df, largest));
  const bool first = *sum == 0.0f;
  const float new_max = first ? tile_max : std::max(*max, tile_max);
  const VF shift = hn::Set(df, new_max);
  VF total = hn::Zero(df);
#pragma GCC unroll 4
  for (int i = 0; i < columns; i += kLanes) {
    const VF weight = ExpOf(df, hn::Sub(hn::LoadU(df, scores + i), shift));
    hn::StoreU(weight, df, scores + i);
    total = hn::Add(total, weight);
  }
  const float tile_sum = hn::GetLane(hn::SumOfLanes(df, total));
  if (first) {
    *sum = tile_sum;
  } else if (new_max == *max) {
    *sum += tile_sum;
  } else {
    const float factor = hn::GetLane(ExpOf(df, hn::Set(df, *max - new_max)));
    *sum = *sum * factor + tile_sum;
    const VF factors = hn::Set(df, factor);
    for (int i = 0; i < padded; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(df, out + i), factors), df, out + i);
    }
  }
  *max = new_max;
}

template <int kQueries>
void AttendQueries(const float* queries, const KeyRange* visible, int head_dim, float softcap,
                   const KeyValueTile& tile, const AttentionState& state) {
  const int padded = PaddedHeadDim(head_dim);
  HWY_ALIGN float scores[kQueries][kKeyTile];
  int begin = kKeyTile;
  int end = 0;
  for (int q = 0; q < kQueries; ++q) {
    if (visible[q].begin >= visible[q].end) continue;
    begin = std::min(begin, visible[q].begin);
    end = std::max(end, visible[q].end);
  }
  if (begin >= end) return;
  const int from = begin / 16 * 16;
  const int columns = (end + 15) / 16 * 16 - from;
  OuterProducts<kQueries, false>(queries, head_dim, tile.keys + from, kKeyTile, head_dim, columns,
                                 scores[0] + from, kKeyTile);
  for (int q = 0; q < kQueries; ++q) {
    float* row = scores[q] + from;
    const KeyRange seen{visible[q].begin - from, visible[q].end - from};
    if (seen.begin >= seen.end) {
      std::fill(row, row + columns, 0.0f);
      continue;
    }
    if (softcap > 0.0f) SoftCapScores(row, columns, softcap);
    float* const max = &state.max[q];
    float* const sum = &state.sum[q];
    float* const out = state.out + q * padded;
    if (seen == KeyRange{0, kKeyTile}) {
      SoftmaxRow<kKeyTile, true>(row, columns, seen, padded, max, sum, out);
    } else if (columns == kKeyTile) {
      SoftmaxRow<kKeyTile, false>(row, columns, seen, padded, max, sum, out);
    } else {
      SoftmaxRow<0, false>(row, columns, seen, padded, max, sum, out);
    }
  }
  // Keys that a query does not see have weight 0 and finite values: adding them changes nothing.
  OuterProducts<kQueries, true>(scores[0] + begin, kKeyTile, tile.values + begin * padded, padded,
                                end - begin, padded, state.out, padded);
}

bool ValuesAreFiniteImpl(KeyRange loaded, int head_dim, const KeyValueTile& tile) {
  const DF df;
  const std::size_t padded = PaddedHeadDim(head_dim);
  VF sum = hn::Zero(df);  // of x * 0: zero, or NaN where any x is not finite
  for (std::size_t i = loaded.begin * padded; i < loaded.end * padded; i += kLanes) {
    sum = hn::MulAdd(hn::LoadU(df, tile.values + i), hn::Zero(df), sum);
  }
  return hn::AllTrue(df, hn::Eq(sum, hn::Zero(df)));
}

void AttendTileImpl(const float* queries, const KeyRange* visible, int num_queries, int head_dim,
                    float softcap, const KeyValueTile& tile, const AttentionState& state) {
  const int padded = PaddedHeadDim(head_dim);
  int q = 0;
  const auto rest = [&] {
    return AttentionState{state.max + q, state.sum + q, state.out + q * padded};
  };
  const auto attend = [&](auto count) HWY_ATTR {
    AttendQueries<decltype(count)::value>(queries + q * head_dim, visible + q, head_dim, softcap,
                                          tile, rest());
  };
  for (; num_queries - q >= kMaxQueries; q += kMaxQueries) {
    attend(std::integral_constant<int, kMaxQueries>());
  }
  switch (num_queries - q) {
    case 5:
    case 4:
      attend(std::integral_constant<int, 4>());
      q += 4;
      if (q == num_queries) break;
      [[fallthrough]];
    case 1:
      attend(std::integral_constant<int, 1>());
      break;
    case 3:
      attend(std::integral_constant<int, 3>());
      break;
    case 2:
      attend(std::integral_constant<int, 2>());
      break;
    default:
      break;
  }
}

void JoinAttentionImpl(const AttentionState& part, int num_queries, int head_dim,
                       const AttentionState& total) {
  const DF df;
  const int padded = PaddedHeadDim(head_dim);
  for (int q = 0; q < num_queries; ++q) {
    if (part.sum[q] == 0.0f) continue;
    const bool first = total.sum[q] == 0.0f;
    const float max = first ? part.max[q] : std::max(part.max[q], total.max[q]);
    const VF keep = first ? hn::Zero(df) : ExpOf(df, hn::Set(df, total.max[q] - max));
    const VF add = ExpOf(df, hn::Set(df, part.max[q] - max));
    total.sum[q] = total.sum[q] * hn::GetLane(keep) + part.sum[q] * hn::GetLane(add);
    total.max[q] = max;
    const float* from = part.out + q * padded;
    float* to = total.out + q * padded;
    for (int i = 0; i < padded; i += kLanes) {
      const VF kept = hn::Mul(hn::LoadU(df, to + i), keep);
      hn::StoreU(hn::MulAdd(hn::LoadU(df, from + i), add, kept), df, to + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::engine::cpu {

HWY_EXPORT(LoadKeyValuesImpl);
HWY_EXPORT(ValuesAreFiniteImpl);
HWY_EXPORT(AttendTileImpl);
HWY_EXPORT(JoinAttentionImpl);

void LoadKeyValues(const void* keys, const void* values, bool half, int first_key, int count,
                   int head_dim, const KeyValueTile& tile) {
  HWY_DYNAMIC_DISPATCH(LoadKeyValuesImpl)
  (keys, values, half, first_key, count, head_dim, tile);
}

void ClearKeys(KeyRange loaded, int head_dim, const KeyValueTile& tile) {
  const int begin = loaded.begin / 16 * 16;
  const int end = (loaded.end + 15) / 16 * 16;
  if (begin == loaded.begin && end == loaded.end) return;
  for (int d = 0; d < head_dim; ++d) {
    float* keys = tile.keys + d * kKeyTile;
    std::fill(keys + begin, keys + loaded.begin, 0.0f);
    std::fill(keys + loaded.end, keys + end, 0.0f);
  }
}

bool ValuesAreFinite(KeyRange loaded, int head_dim, const KeyValueTile& tile) {
  return HWY_DYNAMIC_DISPATCH(ValuesAreFiniteImpl)(loaded, head_dim, tile);
}

void AttendTile(const float* queries, const KeyRange* visible, int num_queries, int head_dim,
                float softcap, const KeyValueTile& tile, const AttentionState& state) {
  HWY_DYNAMIC_DISPATCH(AttendTileImpl)
  (queries, visible, num_queries, head_dim, softcap, tile, state);
}

void JoinAttention(const AttentionState& part, int num_queries, int head_dim,
                   const AttentionState& total) {
  HWY_DYNAMIC_DISPATCH(JoinAttentionImpl)(part, num_queries, head_dim, total);
}

}  // namespace baton::engine::cpu
#endif  // HWY_ONCE
