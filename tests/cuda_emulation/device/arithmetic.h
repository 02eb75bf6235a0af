#pragma once
// Arithmetic and bit intrinsics of CUDA C++. The approximate ones (__expf, __fdividef, rsqrtf) are
// exact here: tests compare by tolerance.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// CUDA's global overloads. Mixed types, which CUDA converts silently, do not compile here.
using std::max;
using std::min;

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanhf(float x) { return std::tanh(x); }
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
inline float __saturatef(float x) { return x > 0.0f ? std::min(x, 1.0f) : 0.0f; }  // NaN gives 0

// Rounded to nearest even, and never contracted into an fma.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;
  return product;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frsqrt_rn(float a) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a)));
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) {
  volatile double product = a * b;
  return product;
}
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

namespace cuda_emulation {
// A device conversion saturates and turns NaN into 0, where C++ leaves the result undefined.
template <class To, class From>
To Saturate(From x) {
  using Limits = std::numeric_limits<To>;
  if (x != x) return 0;
  if (x <= static_cast<From>(Limits::min())) return Limits::min();
  if (x >= static_cast<From>(Limits::max())) return Limits::max();
  return static_cast<To>(x);
}
}  // namespace cuda_emulation

inline int __float2int_rn(float x) { return cuda_emulation::Saturate<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return cuda_emulation::Saturate<int>(std::trunc(x)); }
inline int __float2int_rd(float x) { return cuda_emulation::Saturate<int>(std::floor(x)); }
inline int __float2int_ru(float x) { return cuda_emulation::Saturate<int>(std::ceil(x)); }
inline unsigned __float2uint_rn(float x) {
  return cuda_emulation::Saturate<unsigned>(std::nearbyint(x));
}
inline unsigned __float2uint_rz(float x) {
  return cuda_emulation::Saturate<unsigned>(std::trunc(x));
}
inline long long __float2ll_rn(float x) {
  return cuda_emulation::Saturate<long long>(std::nearbyint(x));
}
inline int __double2int_rn(double x) { return cuda_emulation::Saturate<int>(std::nearbyint(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

inline unsigned umin(unsigned a, unsigned b) { return std::min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return std::max(a, b); }
inline int __mul24(int a, int b) { return a * b; }
inline int __mulhi(int a, int b) { return static_cast<int>(std::int64_t{a} * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
  return reversed;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}

// Sum of the four products of signed (unsigned) bytes, plus c.
inline int __dp4a(int a, int b, int c) {
  for (int byte = 0; byte < 4; ++byte) {
    c += static_cast<signed char>(a >> 8 * byte) * static_cast<signed char>(b >> 8 * byte);
  }
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int byte = 0; byte < 4; ++byte) c += (a >> 8 * byte & 255u) * (b >> 8 * byte & 255u);
  return c;
}

// Picks four of the eight bytes of y:x; bit 3 of a selector spreads the byte's sign instead.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selectors) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned selector = selectors >> 4 * i & 15u;
    unsigned byte = static_cast<unsigned>(bytes >> 8 * (selector & 7u)) & 255u;
    if ((selector & 8u) != 0) byte = (byte & 128u) != 0 ? 255u : 0u;
    result |= byte << 8 * i;
  }
  return result;
}
