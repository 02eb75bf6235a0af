// Kernels over one row of activations: norm, quantization, conversion to half.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/rows.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/tensor.h"
#include "engine/ops/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace baton::engine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using DI8 = hn::Rebind<std::int8_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
constexpr int kLanes = static_cast<int>(HWY_MIN(HWY_LANES(float), 16));
constexpr float kLargestHalf = 65504.0f;
constexpr float kLargestUnit = kPlanes == 2 ? 127.0f * 128.0f : 127.0f;

void RmsNormRowImpl(const float* x, const float* weight, float eps, int columns, float* out) {
  const DF df;
  VF sum0 = hn::Zero(df);
  VF sum1 = hn::Zero(df);
  int i = 0;
  for (; i + 2 * kLanes <= columns; i += 2 * kLanes) {
    const VF a = hn::LoadU(df, x + i);
    const VF b = hn::LoadU(df, x + i + kLanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(df, hn::Add(sum0, sum1)));
  for (; i < columns; ++i) sum += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(sum / static_cast<float>(columns) + eps);
  const VF factors = hn::Set(df, factor);
  for (i = 0; i + kLanes <= columns; i += kLanes) {
    const VF scaled = hn::Mul(hn::LoadU(df, x + i), factors);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(df, weight + i)), df, out + i);
  }
  for (; i < columns; ++i) out[i] = x[i] * factor * weight[i];
}

// Splits integers into high and low parts of 8 bits and stores both.
HWY_INLINE void StoreParts(VI value, QuantizedGroup& group, int at) {
  const DI di;
  const DI8 di8;
  if constexpr (kPlanes == 1) {
    hn::StoreU(hn::DemoteTo(di8, value), di8, group.values[0] + at);
  } else {
    const VI high = hn::ShiftRight<7>(hn::Add(value, hn::Set(di, 64)));
    const VI low = hn::Sub(value, hn::ShiftLeft<7>(high));
    hn::StoreU(hn::DemoteTo(di8, high), di8, group.values[0] + at);
    hn::StoreU(hn::DemoteTo(di8, low), di8, group.values[kPlanes - 1] + at);
  }
}

void QuantizeRowImpl(const float* x, int count, QuantizedGroup* out) {
  const DF df;
  const DI di;
  for (int g = 0; g < count / kGroup; ++g, x += kGroup, ++out) {
    VF largest = hn::Zero(df);
    for (int i = 0; i < kGroup; i += kLanes) {
      largest = hn::Max(largest, hn::Abs(hn::LoadU(df, x + i)));
    }
    const float max = hn::GetLane(hn::MaxOfLanes(df, largest));
    // Groups of nothing but denormals count as zero: the inverse of their scale overflows.
    const bool zero = max < 1e-30f;
    const float scale = zero ? 0.0f : max / kLargestUnit;
    const VF inverse = hn::Set(df, zero ? 0.0f : kLargestUnit / max);
    VI sums[2] = {hn::Zero(di), hn::Zero(di)};
    for (int i = 0; i < kGroup; i += kLanes) {
      const VI value = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse));
      sums[i / 16] = hn::Add(sums[i / 16], value);
      StoreParts(value, *out, i);
    }
    out->low_sum = hn::GetLane(hn::SumOfLanes(di, sums[0]));
    out->sum = out->low_sum + hn::GetLane(hn::SumOfLanes(di, sums[1]));
    out->scale = scale;
    out->scaled_sum = scale * static_cast<float>(out->sum);
  }
}

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

void FloatsToHalvesImpl(const float* x, int count, std::uint16_t* out) {
  const DF df;
  const hn::Rebind<hwy::float16_t, DF> dh;
  const VF limit = hn::Set(df, kLargestHalf);
  auto* halves = reinterpret_cast<hwy::float16_t*>(out);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF bounded = hn::Min(hn::Max(hn::LoadU(df, x + i), hn::Neg(limit)), limit);
    hn::StoreU(hn::DemoteTo(dh, bounded), dh, halves + i);
  }
  for (; i < count; ++i) {
    out[i] = checkpoint::FloatToHalf(std::clamp(x[i], -kLargestHalf, kLargestHalf));
  }
}

#else  // Highway's own conversion truncates where the processor has none.

void FloatsToHalvesImpl(const float* x, int count, std::uint16_t* out) {
  for (int i = 0; i < count; ++i) {
    out[i] = checkpoint::FloatToHalf(std::clamp(x[i], -kLargestHalf, kLargestHalf));
  }
}

#endif

const char* TargetNameImpl() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace baton::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::engine::cpu {

HWY_EXPORT(RmsNormRowImpl);
HWY_EXPORT(QuantizeRowImpl);
HWY_EXPORT(FloatsToHalvesImpl);
HWY_EXPORT(TargetNameImpl);

void RmsNormRow(const float* x, const float* weight, float eps, int columns, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormRowImpl)(x, weight, eps, columns, out);
}
void QuantizeRow(const float* x, int count, QuantizedGroup* out) {
  HWY_DYNAMIC_DISPATCH(QuantizeRowImpl)(x, count, out);
}
void FloatsToHalves(const float* x, int count, std::uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(FloatsToHalvesImpl)(x, count, out);
}

}  // namespace baton::engine::cpu

namespace baton::engine {

std::string_view CpuInstructionSet() { return HWY_DYNAMIC_DISPATCH(cpu::TargetNameImpl)(); }

}  // namespace baton::engine
#endif  // HWY_ONCE
