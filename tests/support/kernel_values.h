#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>
#if __has_include("cuda_emulation/controls.h")
#include "cuda_emulation/controls.h"
#endif

#include "gpu/device_buffer.h"

// Values of the element types of kernels, and comparisons that know how they round.
namespace baton::testing {

using KernelTypes = ::testing::Types<__nv_bfloat16, __half, float>;

template <class T>
T RoundTo(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

template <class T>
float FloatOf(T x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __half2float(x);
  } else {
    return x;
  }
}

template <class T>
std::vector<T> RoundAll(const std::vector<float>& values) {
  std::vector<T> rounded;
  for (const float value : values) rounded.push_back(RoundTo<T>(value));
  return rounded;
}

template <class T>
std::vector<float> FloatsOf(const std::vector<T>& values) {
  std::vector<float> floats;
  for (const T value : values) floats.push_back(FloatOf(value));
  return floats;
}

inline std::vector<float> NormalFloats(std::size_t count, std::mt19937& random,
                                       float deviation = 1.0f) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The largest error that rounding to T makes, as a share of the value.
template <class T>
constexpr float HalfUlp() {
  if (std::is_same_v<T, __nv_bfloat16>) return 0x1.0p-8f;
  return std::is_same_v<T, __half> ? 0x1.0p-11f : 0x1.0p-24f;
}

// `got` is `want` rounded to T, give or take `slack` of its value and of 1 for what float sums
// lose.
template <class T>
void ExpectRounded(T got, double want, float slack = 2e-6f) {
  const double allowed =
      std::abs(want) * (HalfUlp<T>() + slack) + slack + (std::is_same_v<T, __half> ? 3e-8 : 0.0);
  EXPECT_NEAR(FloatOf(got), want, allowed);
}

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Runs `body` under several orders in which a device might run threads and blocks; once on a real
// device, which chooses its own.
template <class Body>
void UnderSeveralSchedules(const Body& body) {
#if __has_include("cuda_emulation/controls.h")
  using cuda_emulation::Order;
  const cuda_emulation::Schedule before = cuda_emulation::CurrentSchedule();
  for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
    SCOPED_TRACE(static_cast<int>(order));
    cuda_emulation::Schedule schedule = before;
    schedule.order = order;
    cuda_emulation::SetSchedule(schedule);
    body();
  }
  cuda_emulation::SetSchedule(before);
#else
  body();
#endif
}

}  // namespace baton::testing
