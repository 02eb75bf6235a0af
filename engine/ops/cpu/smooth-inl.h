// Per-target header (included once for each instruction set): smooth functions of a vector of
// floats built on exp: tanh, and the nonlinearities of gated MLPs.

#if defined(BATON_ENGINE_OPS_CPU_SMOOTH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_ENGINE_OPS_CPU_SMOOTH_INL_H_
#undef BATON_ENGINE_OPS_CPU_SMOOTH_INL_H_
#else
#define BATON_ENGINE_OPS_CPU_SMOOTH_INL_H_
#endif

#include "engine/ops/cpu/exp-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace baton::engine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// tanh(x) within 4 units in the last place: Cephes' polynomial below 0.625, exp above.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V TanhOf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V size = hn::Abs(x);
  const V square = hn::Mul(x, x);
  V p = hn::Set(d, -5.70498872745e-3f);
  p = hn::MulAdd(p, square, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, square, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, square, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, square, hn::Set(d, -3.33332819422e-1f));
  const V small = hn::MulAdd(hn::Mul(p, square), x, x);
  const V power = ExpOf(d, hn::Add(size, size));
  const V large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(power, one)));
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), small, hn::CopySign(large, x));
}

// cap * tanh(x / cap)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SoftCapOf(D d, V x, V cap) {
  return hn::Mul(cap, TanhOf(d, hn::Div(x, cap)));
}

// z / (1 + exp(-z))
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SiluOf(D d, V z) {
  return hn::Div(z, hn::Add(hn::Set(d, 1.0f), ExpOf(d, hn::Neg(z))));
}

// 0.5 z (1 + tanh(u)), u = sqrt(2 / pi) (z + 0.044715 z^3): as z / (1 + exp(-2u)), which keeps all
// digits where tanh nears -1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluTanhOf(D d, V z) {
  constexpr float kTwice = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  const V scaled = hn::Mul(z, hn::Set(d, kTwice));
  const V cubic = hn::Mul(hn::Mul(z, z), hn::Set(d, 0.044715f));
  const V twice_u = hn::MulAdd(scaled, cubic, scaled);
  return hn::Div(z, hn::Add(hn::Set(d, 1.0f), ExpOf(d, hn::Neg(twice_u))));
}

// z * P(N(0, 1) < z) = 0.5 z (1 + erf(z / sqrt(2))). The tail beyond |z| is
// exp(-z^2 / 2) * p(1 / (1 + 0.3 |z|)) with p of degree 8, fitted for this form by Remez exchange
// in 60 digits: off by 6e-8 of itself at most for |z| <= 14, where it is zero in float.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluErfOf(D d, V z) {
  const V one = hn::Set(d, 1.0f);
  const V t = hn::Div(one, hn::MulAdd(hn::Abs(z), hn::Set(d, 0.3f), one));
  V p = hn::Set(d, 3.837818825e-2f);
  p = hn::MulAdd(p, t, hn::Set(d, -1.691656333e-1f));
  p = hn::MulAdd(p, t, hn::Set(d, 2.286591274e-1f));
  p = hn::MulAdd(p, t, hn::Set(d, -7.650543404e-2f));
  p = hn::MulAdd(p, t, hn::Set(d, 1.425348428e-1f));
  p = hn::MulAdd(p, t, hn::Set(d, 9.468379371e-2f));
  p = hn::MulAdd(p, t, hn::Set(d, 1.219202786e-1f));
  p = hn::MulAdd(p, t, hn::Set(d, 1.194876970e-1f));
  p = hn::MulAdd(p, t, hn::Set(d, 7.168452821e-6f));
  const V half_square = hn::Mul(hn::Mul(z, z), hn::Set(d, -0.5f));
  const V tail = hn::Mul(ExpOf(d, half_square), p);
  const auto negative = hn::Lt(z, hn::Zero(d));
  return hn::Mul(z, hn::IfThenElse(negative, tail, hn::Sub(one, tail)));
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::engine::cpu
HWY_AFTER_NAMESPACE();

#endif
