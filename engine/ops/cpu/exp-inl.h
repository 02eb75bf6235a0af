// Per-target header (included once for each instruction set): exp of a vector of floats.

#if defined(BATON_ENGINE_OPS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_ENGINE_OPS_CPU_EXP_INL_H_
#undef BATON_ENGINE_OPS_CPU_EXP_INL_H_
#else
#define BATON_ENGINE_OPS_CPU_EXP_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace baton::engine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(x) within 2 units in the last place for x <= 88; 0 for x < -87 (so for -infinity). Reduces to
// 2^n * exp(r), |r| <= ln(2) / 2, as Cephes' expf does, with its polynomial.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOf(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto tiny = hn::Lt(x, hn::Set(d, -87.0f));
  const V clamped = hn::Min(hn::Max(x, hn::Set(d, -87.0f)), hn::Set(d, 88.0f));
  const auto n = hn::NearestInt(hn::Mul(clamped, hn::Set(d, 1.44269504088896341f)));
  const V nf = hn::ConvertTo(d, n);
  V r = hn::NegMulAdd(nf, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(nf, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(hn::Mul(p, r), r, r), hn::Set(d, 1.0f));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  return hn::IfThenZeroElse(tiny, hn::Mul(p, power));
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::engine::cpu
HWY_AFTER_NAMESPACE();

#endif
