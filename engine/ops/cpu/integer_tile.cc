// Integer matrix product: quantized weights (unsigned bytes or nibbles) times quantized activations
// (signed bytes). The vector runs over output rows: a 32-bit lane holds four columns of one row,
// and four activations are broadcast to all lanes, so no horizontal sum is needed and the order of
// every sum is the same for any number of rows.
// Per group of 32 columns, vector and activation row: 8 products of 4 bytes for each plane, then
// one conversion and two (with mins three) float operations.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/integer_tile.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include <cstring>

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
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
constexpr int kLanes = static_cast<int>(HWY_MIN(HWY_LANES(float), kTileRows));
constexpr int kSteps = kGroup / 4;  // products of 4 bytes per group
constexpr int kPrefetchBytes = 4096;

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
constexpr int kMaxRows = 8;  // activation rows at once: 8 float sums, 8 integer sums, 8 weights
#else
constexpr int kMaxRows = 4;
#endif

// Whether 8-bit weights enter DotStep with their offset of 128 still in (else as signed bytes).
#if HWY_TARGET == HWY_AVX3_DL
constexpr bool kByteOffsetInDot = true;
#else
constexpr bool kByteOffsetInDot = false;
#endif

// Four activations in all lanes.
HWY_INLINE VI BroadcastFour(const std::int8_t* a) {
  std::int32_t four;
  std::memcpy(&four, a, sizeof four);
  return hn::Set(DI(), four);
}

// Adds to every lane of `sum` the products of its four weights and four activations. `w` holds
// bytes 0..15 (kBits == 4) or offset bytes (kBits == 8). What is summed is exact; where the sums
// live (16 or 32 bits) is the target's affair, and FinishSteps turns it into 32 bits. At most 8
// steps may be summed before that.
#if HWY_TARGET == HWY_AVX3_DL

template <int kBits>
HWY_INLINE VI DotStep(VI sum, VU w, const std::int8_t* a) {
  using AliasedInt __attribute__((may_alias)) = std::int32_t;
  // Written out because Highway 1.0.3's target string for AVX3_DL lacks avx512vnni (its detection
  // does not), so the intrinsic would not compile; and to get the broadcast for free.
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sum.raw)
      : "v"(w.raw), "m"(*reinterpret_cast<const AliasedInt*>(a)));
  return sum;
}
template <int kBits>
HWY_INLINE VI FinishSteps(VI sum) {
  return sum;
}

#elif HWY_TARGET == HWY_AVX3

template <int kBits>
HWY_INLINE VI DotStep(VI sum, VU w, const std::int8_t* a) {
  const __m512i four = BroadcastFour(a).raw;
  if constexpr (kBits == 4) {  // 8 steps * 2 products * 15 * 127 < 2^15: sums stay in 16 bits
    return VI{_mm512_add_epi16(sum.raw, _mm512_maddubs_epi16(w.raw, four))};
  } else {
    const __m512i s = _mm512_xor_si512(w.raw, _mm512_set1_epi8(-128));
    const __m512i even = _mm512_madd_epi16(_mm512_srai_epi16(_mm512_slli_epi16(s, 8), 8),
                                           _mm512_srai_epi16(_mm512_slli_epi16(four, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srai_epi16(s, 8), _mm512_srai_epi16(four, 8));
    return VI{_mm512_add_epi32(sum.raw, _mm512_add_epi32(even, odd))};
  }
}
template <int kBits>
HWY_INLINE VI FinishSteps(VI sum) {
  if constexpr (kBits == 4) return VI{_mm512_madd_epi16(sum.raw, _mm512_set1_epi16(1))};
  return sum;
}

#elif HWY_TARGET == HWY_AVX2

template <int kBits>
HWY_INLINE VI DotStep(VI sum, VU w, const std::int8_t* a) {
  const __m256i four = BroadcastFour(a).raw;
  if constexpr (kBits == 4) {
    return VI{_mm256_add_epi16(sum.raw, _mm256_maddubs_epi16(w.raw, four))};
  } else {
    // |w| * sign(w) a: a pair is at most 2 * 128 * 127 < 2^15.
    const __m256i s = _mm256_xor_si256(w.raw, _mm256_set1_epi8(-128));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(four, s));
    return VI{_mm256_add_epi32(sum.raw, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
  }
}
template <int kBits>
HWY_INLINE VI FinishSteps(VI sum) {
  if constexpr (kBits == 4) return VI{_mm256_madd_epi16(sum.raw, _mm256_set1_epi16(1))};
  return sum;
}

#elif HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3

template <int kBits>
HWY_INLINE VI DotStep(VI sum, VU w, const std::int8_t* a) {
  const __m128i four = BroadcastFour(a).raw;
  if constexpr (kBits == 4) {
    return VI{_mm_add_epi16(sum.raw, _mm_maddubs_epi16(w.raw, four))};
  } else {
    const __m128i s = _mm_xor_si128(w.raw, _mm_set1_epi8(-128));
    const __m128i pairs = _mm_maddubs_epi16(_mm_abs_epi8(s), _mm_sign_epi8(four, s));
    return VI{_mm_add_epi32(sum.raw, _mm_madd_epi16(pairs, _mm_set1_epi16(1)))};
  }
}
template <int kBits>
HWY_INLINE VI FinishSteps(VI sum) {
  if constexpr (kBits == 4) return VI{_mm_madd_epi16(sum.raw, _mm_set1_epi16(1))};
  return sum;
}

#else  // any other target: byte by byte in 32-bit lanes

template <int kBits>
HWY_INLINE VI DotStep(VI sum, VU w, const std::int8_t* a) {
  const DI di;
  const VU byte = hn::Set(DU(), 255u);
  const VI offset = hn::Set(di, kBits == 8 ? 128 : 0);
  const auto product = [&](VU shifted, int j) HWY_ATTR {
    const VI weight = hn::Sub(hn::BitCast(di, hn::And(shifted, byte)), offset);
    return hn::Mul(weight, hn::Set(di, std::int32_t{a[j]}));
  };
  sum = hn::Add(sum, product(w, 0));
  sum = hn::Add(sum, product(hn::ShiftRight<8>(w), 1));
  sum = hn::Add(sum, product(hn::ShiftRight<16>(w), 2));
  return hn::Add(sum, product(hn::ShiftRight<24>(w), 3));
}
template <int kBits>
HWY_INLINE VI FinishSteps(VI sum) {
  return sum;
}

#endif

// The weights of one group, one vector of rows, one step each: bytes of kTraits.product_bits().
template <TileFormat kFormat>
HWY_INLINE void LoadWeights(const std::uint8_t* at, VU (&w)[kSteps]) {
  constexpr TileFormatTraits kTraits = TraitsOf(kFormat);
  const DU du;
  const auto* words = reinterpret_cast<const std::uint32_t*>(at);
  if constexpr (kTraits.bits == 2) {
    const VU pair = hn::Set(du, 0x03030303u);
#pragma GCC unroll 2
    for (int s = 0; s < 2; ++s) {
      const VU four = hn::LoadU(du, words + s * kTileRows);
      w[s] = hn::And(four, pair);
      w[s + 2] = hn::And(hn::ShiftRight<2>(four), pair);
      w[s + 4] = hn::And(hn::ShiftRight<4>(four), pair);
      w[s + 6] = hn::And(hn::ShiftRight<6>(four), pair);
    }
  } else if constexpr (kTraits.bits == 4) {
    const VU nibble = hn::Set(du, 0x0F0F0F0Fu);
#pragma GCC unroll 8
    for (int s = 0; s < kSteps / 2; ++s) {
      const VU both = hn::LoadU(du, words + s * kTileRows);
      w[s] = LookUpCodes<kTraits.table>(du, hn::And(both, nibble));
      w[s + kSteps / 2] = LookUpCodes<kTraits.table>(du, hn::And(hn::ShiftRight<4>(both), nibble));
    }
  } else {
#pragma GCC unroll 8
    for (int s = 0; s < kSteps; ++s) w[s] = hn::LoadU(du, words + s * kTileRows);
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

// -scale * zero: what takes the zeros of kInt4Zero out of the products of plain nibbles. Exact.
HWY_INLINE VF MinOfZero(const std::uint8_t* scales, VF scale, int lane) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DF> bytes;
  constexpr int kZeros = TraitsOf(TileFormat::kInt4Zero).scale_bytes() - kTileRows;
  const VF zero = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(bytes, scales + kZeros + lane)));
  return hn::Neg(hn::Mul(scale, zero));
}

// sum[m] = exact integer dot products of steps [kFirst, kLast) of one group.
template <int kBits, int kRows, int kFirst, int kLast>
HWY_INLINE void DotSteps(const VU (&w)[kSteps], const QuantizedGroup* const (&x)[kRows],
                         VI (&sum)[kRows]) {
  const DI di;
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) sum[m] = hn::Zero(di);
#pragma GCC unroll 8
  for (int plane = 0; plane < kPlanes; ++plane) {
    VI part[kRows];
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) part[m] = hn::Zero(di);
#pragma GCC unroll 8
    for (int s = kFirst; s < kLast; ++s) {
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        part[m] = DotStep<kBits>(part[m], w[s], x[m]->values[plane] + 4 * s);
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      sum[m] = hn::Add(hn::ShiftLeft<7>(sum[m]), FinishSteps<kBits>(part[m]));
    }
  }
}

// The offset that DotStep left in its sums, as a shift.
template <TileFormat kFormat>
constexpr int OffsetShift() {
  constexpr TileFormatTraits kTraits = TraitsOf(kFormat);
  if (kTraits.product_bits() == 8) return kByteOffsetInDot ? 7 : 0;
  return kTraits.offset == 8 ? 3 : kTraits.offset == 4 ? 2 : 0;
}

// The sum of a row's activations in steps [kFirst, kLast) of a group.
template <int kFirst, int kLast>
HWY_INLINE std::int32_t SumOfSteps(const QuantizedGroup& x) {
  if constexpr (kLast - kFirst == kSteps) return x.sum;
  return kFirst == 0 ? x.low_sum : x.sum - x.low_sum;
}

// acc[m] += scale * (dot - offset * sum of activations) * activation scale.
template <TileFormat kFormat, int kRows, int kFirst, int kLast>
HWY_INLINE void AddScaled(const VU (&w)[kSteps], VF scale, const QuantizedGroup* const (&x)[kRows],
                          VF (&acc)[kRows]) {
  const DF df;
  const DI di;
  VI sum[kRows];
  DotSteps<TraitsOf(kFormat).product_bits(), kRows, kFirst, kLast>(w, x, sum);
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    if constexpr (OffsetShift<kFormat>() != 0) {
      const std::int32_t activations = SumOfSteps<kFirst, kLast>(*x[m]);
      sum[m] = hn::Sub(sum[m], hn::ShiftLeft<OffsetShift<kFormat>()>(hn::Set(di, activations)));
    }
    const VF both = hn::Mul(scale, hn::Set(df, x[m]->scale));
    acc[m] = hn::MulAdd(hn::ConvertTo(df, sum[m]), both, acc[m]);
  }
}

// t[m] (+)= scale * dot + min * sum of activations, of steps [kFirst, kLast) of a group.
template <TileFormat kFormat, int kRows, int kFirst, int kLast>
HWY_INLINE void HalfWithMin(const VU (&w)[kSteps], VF scale, VF min,
                            const QuantizedGroup* const (&x)[kRows], VF (&t)[kRows]) {
  static_assert(OffsetShift<kFormat>() == 0);
  const DF df;
  const DI di;
  VI dot[kRows];
  DotSteps<TraitsOf(kFormat).product_bits(), kRows, kFirst, kLast>(w, x, dot);
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    const VF sum = hn::ConvertTo(df, hn::Set(di, SumOfSteps<kFirst, kLast>(*x[m])));
    const VF product = hn::Mul(scale, hn::ConvertTo(df, dot[m]));
    t[m] = hn::MulAdd(min, sum, kFirst == 0 ? product : hn::Add(t[m], product));
  }
}

// Adds a group with scales and mins for each half. Both halves are summed before they meet `acc`,
// whose chain of sums is what one row waits for.
template <TileFormat kFormat, int kRows>
HWY_INLINE void AddHalvesWithMins(const VU (&w)[kSteps], const std::uint8_t* group, int lane,
                                  const QuantizedGroup* const (&x)[kRows], VF (&acc)[kRows]) {
  constexpr bool kWide = TraitsOf(kFormat).wide_scales;
  const DF df;
  VF t[kRows];
  HalfWithMin<kFormat, kRows, 0, kSteps / 2>(w, LoadScale<kWide>(group, 0, lane),
                                             LoadScale<kWide>(group, 2, lane), x, t);
  HalfWithMin<kFormat, kRows, kSteps / 2, kSteps>(w, LoadScale<kWide>(group, 1, lane),
                                                  LoadScale<kWide>(group, 3, lane), x, t);
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    acc[m] = hn::MulAdd(t[m], hn::Set(df, x[m]->scale), acc[m]);
  }
}

// kRows activation rows against one tile, a vector of output rows at a time.
// kCold: the tile was not read before, so lines are asked for a few groups ahead. One or two rows
// need no help: there the window of the processor itself spans several groups.
template <TileFormat kFormat, int kRows, bool kCold>
void TileRows(const std::uint8_t* tile, int num_groups, const QuantizedGroup* first,
              std::size_t stride, float* out) {
  constexpr TileFormatTraits kTraits = TraitsOf(kFormat);
  const DF df;
  for (int lane = 0; lane < kTileRows; lane += kLanes) {
    VF acc[kRows];
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) acc[m] = hn::Zero(df);
    const QuantizedGroup* x[kRows];
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) x[m] = first + m * stride;
    constexpr int kGroupLines = (kTraits.group_bytes() + 63) / 64;
    const std::uint8_t* group = tile;
    for (int g = 0; g < num_groups; ++g, group += kTraits.group_bytes()) {
      VU w[kSteps];
      if constexpr (kCold && kRows > 2) {
        for (int line = 0; line < kGroupLines; ++line) {
          hwy::Prefetch(group + kPrefetchBytes + line * 64);
        }
      }
      LoadWeights<kFormat>(group + kTraits.scale_bytes() + 4 * lane, w);
      const VF scale = LoadScale<kTraits.wide_scales>(group, 0, lane);
      if constexpr (kTraits.has_min && kTraits.scale_columns != kGroup) {
        AddHalvesWithMins<kFormat, kRows>(w, group, lane, x, acc);
      } else if constexpr (kTraits.scale_columns == kGroup) {
        AddScaled<kFormat, kRows, 0, kSteps>(w, scale, x, acc);
      } else {
        AddScaled<kFormat, kRows, 0, kSteps / 2>(w, scale, x, acc);
        const VF second = LoadScale<kTraits.wide_scales>(group, 1, lane);
        AddScaled<kFormat, kRows, kSteps / 2, kSteps>(w, second, x, acc);
      }
      if constexpr (kTraits.scale_columns == kGroup && (kTraits.has_min || kTraits.has_zero)) {
        VF min;
        if constexpr (kTraits.has_zero) {
          min = MinOfZero(group, scale, lane);
        } else {
          min = LoadScale<kTraits.wide_scales>(group, 1, lane);
        }
#pragma GCC unroll 16
        for (int m = 0; m < kRows; ++m) {
          acc[m] = hn::MulAdd(min, hn::Set(df, x[m]->scaled_sum), acc[m]);
        }
      }
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) ++x[m];
    }
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) hn::StoreU(acc[m], df, out + m * kTileRows + lane);
  }
}

template <TileFormat kFormat>
void Tile(const PackedMatrix& weights, int tile, const QuantizedGroup* x, std::size_t stride,
          int num_rows, float* out) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(weights.Tile(tile));
  const int groups = weights.num_groups();
  int row = 0;
  const auto advance = [&](int count) {
    row += count;
    x += count * stride;
    out += count * kTileRows;
  };
  if (num_rows >= kMaxRows) {
    TileRows<kFormat, kMaxRows, true>(data, groups, x, stride, out);
    advance(kMaxRows);
  }
  while (num_rows - row >= kMaxRows) {
    TileRows<kFormat, kMaxRows, false>(data, groups, x, stride, out);
    advance(kMaxRows);
  }
  if constexpr (kMaxRows > 4) {
    if (num_rows - row >= 4) {
      TileRows<kFormat, 4, true>(data, groups, x, stride, out);
      advance(4);
    }
  }
  if (num_rows - row >= 2) {
    TileRows<kFormat, 2, false>(data, groups, x, stride, out);
    advance(2);
  }
  if (num_rows - row >= 1) TileRows<kFormat, 1, false>(data, groups, x, stride, out);
}

void IntegerTileImpl(const PackedMatrix& weights, int tile, const QuantizedGroup* x,
                     std::size_t stride, int num_rows, float* out) {
  switch (weights.format()) {
    case TileFormat::kInt4Offset8:
      return Tile<TileFormat::kInt4Offset8>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kInt4Min:
      return Tile<TileFormat::kInt4Min>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kInt4MinF32:
      return Tile<TileFormat::kInt4MinF32>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kInt8:
      return Tile<TileFormat::kInt8>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kInt8Min:
      return Tile<TileFormat::kInt8Min>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kInt8MinF32:
      return Tile<TileFormat::kInt8MinF32>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kInt8HalfGroupF32:
      return Tile<TileFormat::kInt8HalfGroupF32>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kInt2HalfGroupMinF32:
      return Tile<TileFormat::kInt2HalfGroupMinF32>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kInt4HalfGroupF32:
      return Tile<TileFormat::kInt4HalfGroupF32>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kInt4Zero:
      return Tile<TileFormat::kInt4Zero>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kIq4:
      return Tile<TileFormat::kIq4>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kIq4F32:
      return Tile<TileFormat::kIq4F32>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kFp4F32:
      return Tile<TileFormat::kFp4F32>(weights, tile, x, stride, num_rows, out);
    case TileFormat::kF16:
    case TileFormat::kBF16:
    case TileFormat::kF32:
      break;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::engine::cpu {

HWY_EXPORT(IntegerTileImpl);

void IntegerTile(const PackedMatrix& weights, int tile, const Activations& x, int first_row,
                 int num_rows, float* out) {
  HWY_DYNAMIC_DISPATCH(IntegerTileImpl)
  (weights, tile, x.quantized + first_row * x.groups, x.groups, num_rows, out);
}

}  // namespace baton::engine::cpu
#endif  // HWY_ONCE
