// Float matrix product: weights of any format, widened to float, times float activations. The
// vector runs over output rows and one activation is broadcast at a time. Columns are taken in
// blocks of 128: quantized weights of a block are widened once into an 8 KiB panel that stays in
// the first-level cache while all activation rows pass over it; float weights are read in place
// when few rows pass.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/float_tile.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>

#include "engine/ops/cpu/code_table-inl.h"
#include "engine/ops/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace baton::engine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kTileRows>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
constexpr int kLanes = static_cast<int>(HWY_MIN(HWY_LANES(float), kTileRows));
// Vectors of output rows at once: two share a broadcast where registers are 256 bits or fewer.
constexpr int kVectors = kTileRows / kLanes >= 2 ? 2 : 1;
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
constexpr int kMaxRows = 12;
#elif HWY_TARGET == HWY_AVX2
constexpr int kMaxRows = 6;
#else
constexpr int kMaxRows = 4;
#endif
constexpr int kColumnBlock = 128;
// Rows from which a panel of 16-bit weights pays.
constexpr int kPanelRows = kMaxRows + 1;

// Loads a vector of weights of one column as float.
template <TileFormat kFormat>
HWY_INLINE VF LoadWeight(const void* tile, std::size_t index) {
  const DF df;
  if constexpr (kFormat == TileFormat::kF32) {
    return hn::LoadU(df, static_cast<const float*>(tile) + index);
  } else if constexpr (kFormat == TileFormat::kF16) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(df, hn::LoadU(dh, static_cast<const hwy::float16_t*>(tile) + index));
  } else {
    const hn::Rebind<hwy::bfloat16_t, DF> dh;
    return hn::PromoteTo(df, hn::LoadU(dh, static_cast<const hwy::bfloat16_t*>(tile) + index));
  }
}

// out[m, :] (+)= sum over `count` columns of weight[k, :] * x[m, k].
template <TileFormat kFormat, int kRows>
void BlockRows(const void* tile, int count, const float* x, std::size_t stride, bool add,
               float* out) {
  const DF df;
  for (int lane = 0; lane < kTileRows; lane += kVectors * kLanes) {
    VF acc[kRows][kVectors];
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[m][v] = hn::Zero(df);
    }
    for (int k = 0; k < count; ++k) {
      VF w[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        w[v] =
            LoadWeight<kFormat>(tile, static_cast<std::size_t>(k) * kTileRows + lane + v * kLanes);
      }
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        const VF a = hn::Set(df, x[m * stride + k]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[m][v] = hn::MulAdd(w[v], a, acc[m][v]);
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        float* at = out + m * kTileRows + lane + v * kLanes;
        hn::StoreU(add ? hn::Add(hn::LoadU(df, at), acc[m][v]) : acc[m][v], df, at);
      }
    }
  }
}

// All rows against one block of columns.
template <TileFormat kFormat>
void Block(const void* tile, int count, const float* x, std::size_t stride, int num_rows, bool add,
           float* out) {
  int row = 0;
  for (; num_rows - row >= kMaxRows; row += kMaxRows) {
    BlockRows<kFormat, kMaxRows>(tile, count, x + row * stride, stride, add, out + row * kTileRows);
  }
  if constexpr (kMaxRows > 4) {
    for (; num_rows - row >= 4; row += 4) {
      BlockRows<kFormat, 4>(tile, count, x + row * stride, stride, add, out + row * kTileRows);
    }
  }
  for (; num_rows - row >= 2; row += 2) {
    BlockRows<kFormat, 2>(tile, count, x + row * stride, stride, add, out + row * kTileRows);
  }
  for (; row < num_rows; ++row) {
    BlockRows<kFormat, 1>(tile, count, x + row * stride, stride, add, out + row * kTileRows);
  }
}

// Widens `count` columns of a 16-bit tile.
template <TileFormat kFormat>
void WidenHalf(const void* tile, int count, float* panel) {
  const DF df;
  for (int i = 0; i < count * kTileRows; i += kLanes) {
    hn::Store(LoadWeight<kFormat>(tile, i), df, panel + i);
  }
}

template <bool kWide>
HWY_INLINE VF LoadScale(const std::uint8_t* scales, int vector, int lane) {
  const DF df;
  if constexpr (kWide) {
    return hn::LoadU(df, reinterpret_cast<const float*>(scales) + vector * kTileRows + lane);
  } else {
    const hn::Rebind<hwy::float16_t, DF> dh;
    const auto* at = reinterpret_cast<const hwy::float16_t*>(scales) + vector * kTileRows + lane;
    return hn::PromoteTo(df, hn::LoadU(dh, at));
  }
}

// -scale * zero of kInt4Zero; exact, and so is scale * stored + min.
HWY_INLINE VF MinOfZero(const std::uint8_t* scales, VF scale, int lane) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DF> bytes;
  constexpr int kZeros = TraitsOf(TileFormat::kInt4Zero).scale_bytes() - kTileRows;
  const VF zero = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(bytes, scales + kZeros + lane)));
  return hn::Neg(hn::Mul(scale, zero));
}

// Widens groups [first, last) of an integer tile: scale * (stored - offset) + min.
template <TileFormat kFormat>
void WidenGroups(const std::uint8_t* tile, int first, int last, float* panel) {
  constexpr TileFormatTraits kTraits = TraitsOf(kFormat);
  constexpr bool kHalfGroups = kTraits.scale_columns != kGroup;
  constexpr int kWords = kTraits.bits;  // vectors of words: 8 steps of columns, `bits` of a byte
  const DF df;
  const DI di;
  const DU du;
  const VU codes = hn::Set(du, 0x0F0F0F0Fu);
  const VU mask = hn::Set(du, kTraits.product_bits() == 8 ? 255u : (1u << kTraits.bits) - 1);
  for (int g = first; g < last; ++g) {
    const std::uint8_t* scales = tile + static_cast<std::size_t>(g) * kTraits.group_bytes();
    const std::uint8_t* quants = scales + kTraits.scale_bytes();
    float* group_panel = panel + (g - first) * kGroup * kTileRows;
    for (int lane = 0; lane < kTileRows; lane += kLanes) {
      const VF scale0 = LoadScale<kTraits.wide_scales>(scales, 0, lane);
      VF scale1 = scale0;
      if constexpr (kHalfGroups) {
        scale1 = LoadScale<kTraits.wide_scales>(scales, 1, lane);
      }
      VF min0 = hn::Zero(df);
      if constexpr (kTraits.has_min) {
        min0 = LoadScale<kTraits.wide_scales>(scales, kTraits.scales_per_group(), lane);
      } else if constexpr (kTraits.has_zero) {
        min0 = MinOfZero(scales, scale0, lane);
      }
      VF min1 = min0;
      if constexpr (kTraits.has_min && kHalfGroups) {
        min1 = LoadScale<kTraits.wide_scales>(scales, 3, lane);
      }
      for (int s = 0; s < kGroup / 4; ++s) {
        const int word = s % kWords;
        VU bits = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(quants + word * 64) + lane);
        bits = hn::ShiftRightSame(bits, s / kWords * kTraits.bits);
        if constexpr (kTraits.table != CodeTable::kNone) {
          bits = LookUpCodes<kTraits.table>(du, hn::And(bits, codes));
        }
        for (int j = 0; j < 4; ++j) {
          const auto stored = hn::BitCast(di, hn::And(bits, mask));
          bits = hn::ShiftRight<8>(bits);
          const VF value = hn::ConvertTo(df, hn::Sub(stored, hn::Set(di, kTraits.offset)));
          hn::Store(hn::MulAdd(value, s < 4 ? scale0 : scale1, s < 4 ? min0 : min1), df,
                    group_panel + (4 * s + j) * kTileRows + lane);
        }
      }
    }
  }
}

// Widens columns [first, first + count) of a tile into `panel`; both multiples of 32 for integers.
void Widen(const PackedMatrix& weights, const std::byte* tile, int first, int count, float* panel) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(tile);
  const int group = first / kGroup;
  const int last = (first + count) / kGroup;
  const std::size_t skipped = static_cast<std::size_t>(first) * kTileRows;
  switch (weights.format()) {
    case TileFormat::kInt4Offset8:
      return WidenGroups<TileFormat::kInt4Offset8>(bytes, group, last, panel);
    case TileFormat::kInt4Min:
      return WidenGroups<TileFormat::kInt4Min>(bytes, group, last, panel);
    case TileFormat::kInt4MinF32:
      return WidenGroups<TileFormat::kInt4MinF32>(bytes, group, last, panel);
    case TileFormat::kInt8:
      return WidenGroups<TileFormat::kInt8>(bytes, group, last, panel);
    case TileFormat::kInt8Min:
      return WidenGroups<TileFormat::kInt8Min>(bytes, group, last, panel);
    case TileFormat::kInt8MinF32:
      return WidenGroups<TileFormat::kInt8MinF32>(bytes, group, last, panel);
    case TileFormat::kInt8HalfGroupF32:
      return WidenGroups<TileFormat::kInt8HalfGroupF32>(bytes, group, last, panel);
    case TileFormat::kInt2HalfGroupMinF32:
      return WidenGroups<TileFormat::kInt2HalfGroupMinF32>(bytes, group, last, panel);
    case TileFormat::kInt4HalfGroupF32:
      return WidenGroups<TileFormat::kInt4HalfGroupF32>(bytes, group, last, panel);
    case TileFormat::kInt4Zero:
      return WidenGroups<TileFormat::kInt4Zero>(bytes, group, last, panel);
    case TileFormat::kIq4:
      return WidenGroups<TileFormat::kIq4>(bytes, group, last, panel);
    case TileFormat::kIq4F32:
      return WidenGroups<TileFormat::kIq4F32>(bytes, group, last, panel);
    case TileFormat::kFp4F32:
      return WidenGroups<TileFormat::kFp4F32>(bytes, group, last, panel);
    case TileFormat::kF16:
      return WidenHalf<TileFormat::kF16>(bytes + 2 * skipped, count, panel);
    case TileFormat::kBF16:
      return WidenHalf<TileFormat::kBF16>(bytes + 2 * skipped, count, panel);
    case TileFormat::kF32:
      break;
  }
}

void FloatTileImpl(const PackedMatrix& weights, int tile, const float* x, std::size_t stride,
                   int num_rows, float* out) {
  HWY_ALIGN float panel[kColumnBlock * kTileRows];
  const std::byte* data = weights.Tile(tile);
  const TileFormat format = weights.format();
  for (int first = 0; first < weights.columns(); first += kColumnBlock) {
    const int count = std::min(kColumnBlock, weights.columns() - first);
    const bool add = first > 0;
    const std::size_t skipped = static_cast<std::size_t>(first) * kTileRows;
    if (format == TileFormat::kF32) {
      Block<TileFormat::kF32>(data + 4 * skipped, count, x + first, stride, num_rows, add, out);
    } else if (format == TileFormat::kF16 && num_rows < kPanelRows) {
      Block<TileFormat::kF16>(data + 2 * skipped, count, x + first, stride, num_rows, add, out);
    } else if (format == TileFormat::kBF16 && num_rows < kPanelRows) {
      Block<TileFormat::kBF16>(data + 2 * skipped, count, x + first, stride, num_rows, add, out);
    } else {
      Widen(weights, data, first, count, panel);
      Block<TileFormat::kF32>(panel, count, x + first, stride, num_rows, add, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::engine::cpu {

HWY_EXPORT(FloatTileImpl);

void FloatTile(const PackedMatrix& weights, int tile, const Activations& x, int first_row,
               int num_rows, float* out) {
  HWY_DYNAMIC_DISPATCH(FloatTileImpl)
  (weights, tile, x.floats + first_row * x.stride, x.stride, num_rows, out);
}

}  // namespace baton::engine::cpu
#endif  // HWY_ONCE
