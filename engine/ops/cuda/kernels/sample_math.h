#pragma once
#include <cmath>
#include <cstdint>

#include "gpu/portable.h"

// The arithmetic of engine::Sampler on the device, the same in every bit: operations are rounded
// one by one (a compiler may not fuse them), and the exponential is that of
// engine/sampling/softmax_weights.cc.
namespace baton::engine::cuda {

// What orders candidates, so that the greatest key is the best: value ascending, id descending.
using SampleKey = unsigned long long;

// NaN becomes -inf, +inf the largest finite float: differences are never inf - inf.
__device__ __forceinline__ float SanitizedLogit(float logit) {
  constexpr float kLargest = 3.402823466e+38f;
  const float bounded = logit > kLargest ? kLargest : logit;
  return bounded >= -INFINITY ? bounded : -INFINITY;
}

// By logit, which is sanitized. -0 and +0 are equal.
__device__ __forceinline__ SampleKey LogitKey(float logit, int id) {
  const unsigned bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);
  const unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return SampleKey{ordered} << 32 | (0xffffffffu - static_cast<unsigned>(id));
}

// By weight, which is not negative: such floats order like their bits.
__device__ __forceinline__ SampleKey WeightKey(float weight, int id) {
  return SampleKey{__float_as_uint(weight)} << 32 | (0xffffffffu - static_cast<unsigned>(id));
}

__device__ __forceinline__ int IdOf(SampleKey key) {
  return static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}

// e^x for x <= 0; 0 below 1e-37.
__device__ __forceinline__ float ExpOfNegative(float x) {
  constexpr float kLowest = -86.0f;
  constexpr float kRoundToInteger = 12582912.0f;  // 1.5 * 2^23: adding it pushes the fraction out
  const float clamped = x < kLowest ? kLowest : x;
  const float shifted = __fadd_rn(__fmul_rn(clamped, 1.44269504088896341f), kRoundToInteger);
  const float n = __fsub_rn(shifted, kRoundToInteger);
  const float r =
      __fsub_rn(__fsub_rn(clamped, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440e-4f));
  float p = 1.9875691500e-4f;
  p = __fadd_rn(__fmul_rn(p, r), 1.3981999507e-3f);
  p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3f);
  p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2f);
  p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1f);
  p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1f);
  p = __fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(p, r), r), r), 1.0f);
  const unsigned exponent = (__float_as_uint(shifted) << 23) + 0x3F800000u;
  return x < kLowest ? 0.0f : __fmul_rn(p, __uint_as_float(exponent));
}

// Uniform in [0, 1): engine::CounterUniform, Philox4x32-10 keyed by `seed` with `position` as
// counter. Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
__device__ inline double CounterUniformOf(std::uint64_t seed, std::uint64_t position) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::uint32_t c0 = static_cast<std::uint32_t>(position), c2 = 0, c3 = 0;
  std::uint32_t c1 = static_cast<std::uint32_t>(position >> 32);
  std::uint32_t key0 = static_cast<std::uint32_t>(seed);
  std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * c0, product1 = kMultiplier1 * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<std::uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  const std::uint64_t bits = std::uint64_t{c0} << 32 | c1;
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace baton::engine::cuda
