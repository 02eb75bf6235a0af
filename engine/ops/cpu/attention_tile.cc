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

#include "engine/ops/cpu/exp-inl.h"
#include "engine/ops/cpu/kernels.h"

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

void LoadKeyValuesImpl(const void* keys, const void* values, bool half, int first_key, int count,
                       int head_dim, const KeyValueTile& tile) {
  const int padded = PaddedHeadDim(head_dim);
  const std::size_t row_bytes = static_cast<std::size_t>(head_dim) * (half ? 2 : 4);
  const auto* key_bytes = static_cast<const std::byte*>(keys);
  const auto* value_bytes = static_cast<const std::byte*>(values);
  for (int i = 0; i < count; ++i) {
    float* out = tile.values + (first_key + i) * padded;
    WidenRow(value_bytes + i * row_bytes, half, head_dim, out);
    std::fill(out + head_dim, out + padded, 0.0f);
  }
  // Keys pass through a small buffer, up to 256 dimensions at a time.
  constexpr int kChunk = 256;
  HWY_ALIGN float wide[4][kChunk];
  const float* const rows[4] = {wide[0], wide[1], wide[2], wide[3]};
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int d = 0; d < head_dim; d += kChunk) {
      const int dims = std::min(kChunk, head_dim - d);
      const std::size_t skip = static_cast<std::size_t>(d) * (half ? 2 : 4);
      for (int j = 0; j < 4; ++j) {
        WidenRow(key_bytes + (i + j) * row_bytes + skip, half, dims, wide[j]);
      }
      TransposeFour(rows, dims, first_key + i, tile.keys + d * kKeyTile);
    }
  }
  for (; i < count; ++i) {
    for (int d = 0; d < head_dim; d += kChunk) {
      const int dims = std::min(kChunk, head_dim - d);
      const std::size_t skip = static_cast<std::size_t>(d) * (half ? 2 : 4);
      WidenRow(key_bytes + i * row_bytes + skip, half, dims, wide[0]);
      for (int j = 0; j < dims; ++j) tile.keys[(d + j) * kKeyTile + first_key + i] = wide[0][j];
    }
  }
}

// out[q, column ..] (+)= sum over k of left[q, k] * right[k, column ..], kVectors wide. Sums run in
// order of k, starting from what `out` holds when kAdd.
template <int kQueries, bool kAdd>
void OuterProducts(const float* left, int left_stride, const float* right, int right_stride,
                   int count, int columns, float* out, int out_stride) {
  const DF df;
  for (int c = 0; c < columns; c += kVectors * kLanes) {
    // Columns come in 16s: the last step may be narrower than kVectors.
    const int vectors = std::min(kVectors, (columns - c) / kLanes);
    if (vectors == kVectors) {
      VF acc[kQueries][kVectors];
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          acc[q][v] = kAdd ? hn::LoadU(df, out + q * out_stride + c + v * kLanes) : hn::Zero(df);
        }
      }
      for (int k = 0; k < count; ++k) {
        VF r[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          r[v] = hn::LoadU(df, right + k * right_stride + c + v * kLanes);
#pragma GCC unroll 8
        for (int q = 0; q < kQueries; ++q) {
          const VF l = hn::Set(df, left[q * left_stride + k]);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) acc[q][v] = hn::MulAdd(l, r[v], acc[q][v]);
        }
      }
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          hn::StoreU(acc[q][v], df, out + q * out_stride + c + v * kLanes);
      }
      continue;
    }
    for (int q = 0; q < kQueries; ++q) {
      for (int v = 0; v < vectors; ++v) {
        float* at = out + q * out_stride + c + v * kLanes;
        VF acc = kAdd ? hn::LoadU(df, at) : hn::Zero(df);
        for (int k = 0; k < count; ++k) {
          acc = hn::MulAdd(hn::Set(df, left[q * left_stride + k]),
                           hn::LoadU(df, right + k * right_stride + c + v * kLanes), acc);
        }
        hn::StoreU(acc, df, at);
      }
    }
  }
}

// Turns one row of 64 scores, of which the first `visible` count, into weights exp(score - max),
// and brings the query's running state up to the new maximum.
void SoftmaxRow(float* scores, int visible, int padded, float* max, float* sum, float* out) {
  const DF df;
  const DI di;
  const VF lowest = hn::Set(df, -std::numeric_limits<float>::infinity());
  const auto limit = hn::Set(di, visible);
  VF largest = lowest;
  for (int i = 0; i < kKeyTile; i += kLanes) {
    const auto seen = hn::RebindMask(df, hn::Lt(hn::Iota(di, i), limit));
    const VF score = hn::IfThenElse(seen, hn::LoadU(df, scores + i), lowest);
    hn::StoreU(score, df, scores + i);
    largest = hn::Max(largest, score);
  }
  const float tile_max = hn::GetLane(hn::MaxOfLanes(df, largest));
  const bool first = *sum == 0.0f;
  const float new_max = first ? tile_max : std::max(*max, tile_max);
  const VF shift = hn::Set(df, new_max);
  VF total = hn::Zero(df);
  for (int i = 0; i < kKeyTile; i += kLanes) {
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
void AttendQueries(const float* queries, const int* num_visible, int head_dim,
                   const KeyValueTile& tile, const AttentionState& state) {
  const int padded = PaddedHeadDim(head_dim);
  HWY_ALIGN float scores[kQueries][kKeyTile];
  OuterProducts<kQueries, false>(queries, head_dim, tile.keys, kKeyTile, head_dim, kKeyTile,
                                 scores[0], kKeyTile);
  int most = 0;
  for (int q = 0; q < kQueries; ++q) {
    const int visible = std::clamp(num_visible[q], 0, kKeyTile);
    most = std::max(most, visible);
    if (visible == 0) {
      std::fill(scores[q], scores[q] + kKeyTile, 0.0f);
    } else {
      SoftmaxRow(scores[q], visible, padded, &state.max[q], &state.sum[q], state.out + q * padded);
    }
  }
  // Keys that a query does not see have weight 0 and finite values: adding them changes nothing.
  OuterProducts<kQueries, true>(scores[0], kKeyTile, tile.values, padded, most, padded, state.out,
                                padded);
}

void AttendTileImpl(const float* queries, const int* num_visible, int num_queries, int head_dim,
                    const KeyValueTile& tile, const AttentionState& state) {
  const int padded = PaddedHeadDim(head_dim);
  int q = 0;
  const auto rest = [&] {
    return AttentionState{state.max + q, state.sum + q, state.out + q * padded};
  };
  for (; num_queries - q >= kMaxQueries; q += kMaxQueries) {
    AttendQueries<kMaxQueries>(queries + q * head_dim, num_visible + q, head_dim, tile, rest());
  }
  switch (num_queries - q) {
    case 5:
    case 4:
      AttendQueries<4>(queries + q * head_dim, num_visible + q, head_dim, tile, rest());
      q += 4;
      if (q == num_queries) break;
      [[fallthrough]];
    case 1:
      AttendQueries<1>(queries + q * head_dim, num_visible + q, head_dim, tile, rest());
      break;
    case 3:
      AttendQueries<3>(queries + q * head_dim, num_visible + q, head_dim, tile, rest());
      break;
    case 2:
      AttendQueries<2>(queries + q * head_dim, num_visible + q, head_dim, tile, rest());
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
HWY_EXPORT(AttendTileImpl);
HWY_EXPORT(JoinAttentionImpl);

void LoadKeyValues(const void* keys, const void* values, bool half, int first_key, int count,
                   int head_dim, const KeyValueTile& tile) {
  HWY_DYNAMIC_DISPATCH(LoadKeyValuesImpl)
  (keys, values, half, first_key, count, head_dim, tile);
}

void ClearKeyValues(int first_key, int head_dim, const KeyValueTile& tile) {
  const int padded = PaddedHeadDim(head_dim);
  std::fill(tile.values + first_key * padded, tile.values + kKeyTile * padded, 0.0f);
  for (int d = 0; d < head_dim; ++d) {
    std::fill(tile.keys + d * kKeyTile + first_key, tile.keys + (d + 1) * kKeyTile, 0.0f);
  }
}

void AttendTile(const float* queries, const int* num_visible, int num_queries, int head_dim,
                const KeyValueTile& tile, const AttentionState& state) {
  HWY_DYNAMIC_DISPATCH(AttendTileImpl)
  (queries, num_visible, num_queries, head_dim, tile, state);
}

void JoinAttention(const AttentionState& part, int num_queries, int head_dim,
                   const AttentionState& total) {
  HWY_DYNAMIC_DISPATCH(JoinAttentionImpl)(part, num_queries, head_dim, total);
}

}  // namespace baton::engine::cpu
#endif  // HWY_ONCE
