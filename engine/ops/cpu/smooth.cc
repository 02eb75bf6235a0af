// Kernels of smooth functions over one row: gated activations, soft caps, softmax.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/smooth.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>
#include <limits>

#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/smooth-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::engine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int kLanes = static_cast<int>(HWY_MIN(HWY_LANES(float), 16));

struct Silu {
  HWY_INLINE VF operator()(VF z) const { return SiluOf(DF(), z); }
};
struct GeluTanh {
  HWY_INLINE VF operator()(VF z) const { return GeluTanhOf(DF(), z); }
};
struct GeluErf {
  HWY_INLINE VF operator()(VF z) const { return GeluErfOf(DF(), z); }
};

template <class Function>
void Gate(const float* gate, const float* up, int count, float* out) {
  const DF df;
  const Function act;
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::Mul(act(hn::LoadU(df, gate + i)), hn::LoadU(df, up + i)), df, out + i);
  }
  if (i == count) return;
  HWY_ALIGN float tail[2][16] = {};
  std::copy(gate + i, gate + count, tail[0]);
  std::copy(up + i, up + count, tail[1]);
  hn::Store(hn::Mul(act(hn::Load(df, tail[0])), hn::Load(df, tail[1])), df, tail[0]);
  std::copy(tail[0], tail[0] + (count - i), out + i);
}

void ActivateGateImpl(Activation activation, const float* gate, const float* up, int count,
                      float* out) {
  switch (activation) {
    case Activation::kSilu:
      return Gate<Silu>(gate, up, count, out);
    case Activation::kGeluTanh:
      return Gate<GeluTanh>(gate, up, count, out);
    case Activation::kGelu:
      return Gate<GeluErf>(gate, up, count, out);
  }
}

void SoftCapRowImpl(float cap, int count, float* x) {
  const DF df;
  const VF caps = hn::Set(df, cap);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(SoftCapOf(df, hn::LoadU(df, x + i), caps), df, x + i);
  }
  if (i == count) return;
  HWY_ALIGN float tail[16] = {};
  std::copy(x + i, x + count, tail);
  hn::Store(SoftCapOf(df, hn::Load(df, tail), caps), df, tail);
  std::copy(tail, tail + (count - i), x + i);
}

void SoftmaxRowImpl(int count, float* x) {
  const DF df;
  const int whole = count / kLanes * kLanes;
  HWY_ALIGN float tail[16];
  std::fill(tail, tail + 16, -std::numeric_limits<float>::infinity());
  std::copy(x + whole, x + count, tail);
  VF largest = hn::Load(df, tail);
  for (int i = 0; i < whole; i += kLanes) largest = hn::Max(largest, hn::LoadU(df, x + i));
  const VF shift = hn::Set(df, hn::GetLane(hn::MaxOfLanes(df, largest)));
  const VF last = ExpOf(df, hn::Sub(hn::Load(df, tail), shift));
  VF total = last;
  for (int i = 0; i < whole; i += kLanes) {
    const VF power = ExpOf(df, hn::Sub(hn::LoadU(df, x + i), shift));
    hn::StoreU(power, df, x + i);
    total = hn::Add(total, power);
  }
  hn::Store(last, df, tail);
  std::copy(tail, tail + (count - whole), x + whole);
  const float sum = hn::GetLane(hn::SumOfLanes(df, total));
  for (int i = 0; i < count; ++i) x[i] /= sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::engine::cpu {

HWY_EXPORT(ActivateGateImpl);
HWY_EXPORT(SoftCapRowImpl);
HWY_EXPORT(SoftmaxRowImpl);

void ActivateGate(Activation activation, const float* gate, const float* up, int count,
                  float* out) {
  HWY_DYNAMIC_DISPATCH(ActivateGateImpl)(activation, gate, up, count, out);
}
void SoftCapRow(float cap, int count, float* x) {
  HWY_DYNAMIC_DISPATCH(SoftCapRowImpl)(cap, count, x);
}
void SoftmaxRow(int count, float* x) { HWY_DYNAMIC_DISPATCH(SoftmaxRowImpl)(count, x); }

}  // namespace baton::engine::cpu
#endif  // HWY_ONCE
