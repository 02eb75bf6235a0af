// Smooth functions against the standard library in double, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/ops/cpu/kernels.h"
#include "tests/unit/engine/ops/cpu/targets.h"

namespace baton::engine::cpu {
namespace {

double Activate(Activation activation, double z) {
  switch (activation) {
    case Activation::kSilu:
      return z / (1.0 + std::exp(-z));
    case Activation::kGeluTanh: {
      const double u = std::sqrt(2.0 / M_PI) * (z + 0.044715 * z * z * z);
      return z / (1.0 + std::exp(-2.0 * u));  // 0.5 z (1 + tanh(u)) without its cancellation
    }
    case Activation::kGelu:
      return 0.5 * z * std::erfc(-z / std::sqrt(2.0));
  }
  return 0.0;
}

// What one rounding of exp's argument, of size 2^-23 of it, does to a function that is
// exp(argument) in its tail.
double Tolerance(double expected, double argument) {
  return (1e-6 + 2.5e-7 * std::abs(argument)) * std::abs(expected) + 1e-30;
}

TEST(SmoothTest, ActivationsAreThoseOfDoubleOverTheirWholeRange) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    for (const Activation activation :
         {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
      SCOPED_TRACE(absl::StrCat("activation ", static_cast<int>(activation)));
      std::vector<float> gate;
      for (int i = -80000; i <= 80000; ++i) gate.push_back(static_cast<float>(i) * 1e-3f);
      for (float z = 1e-30f; z < 1e-2f; z *= 7.0f) {
        gate.push_back(z);
        gate.push_back(-z);
      }
      const std::vector<float> up(gate.size(), 1.0f);
      std::vector<float> out(gate.size());

      ActivateGate(activation, gate.data(), up.data(), static_cast<int>(gate.size()), out.data());

      for (std::size_t i = 0; i < gate.size(); ++i) {
        const double z = gate[i];
        const double argument = activation == Activation::kSilu ? z
                                : activation == Activation::kGelu
                                    ? z * z / 2
                                    : 1.6 * (z + 0.044715 * z * z * z);
        const double expected = Activate(activation, z);
        // Where exp is out of float's range, the result is as good as zero.
        const double tolerance = argument < -80 || (activation == Activation::kGelu && z < -12)
                                     ? 1e-30
                                     : Tolerance(expected, z < 0 ? argument : 0.0);
        ASSERT_NEAR(out[i], expected, tolerance) << "z " << z;
      }
    }
  }
}

TEST(SmoothTest, ActivationsOfHugeValuesAreZeroOrThemselves) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    for (const Activation activation :
         {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
      const std::vector<float> gate = {1e10f, 3e38f, -1e10f, 0.0f};
      const std::vector<float> up(4, 1.0f);
      std::vector<float> out(4);

      ActivateGate(activation, gate.data(), up.data(), 4, out.data());

      EXPECT_EQ(out[0], gate[0]);
      EXPECT_EQ(out[1], gate[1]);
      EXPECT_NEAR(out[2], 0.0, 1e-25);
      EXPECT_EQ(out[3], 0.0f);
    }
  }
}

TEST(SmoothTest, GateMultipliesAndWritesNothingBeyondItsCount) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    std::mt19937 random(5);
    std::normal_distribution<float> value(0.0f, 3.0f);
    for (int count = 1; count < 40; ++count) {
      for (const Activation activation :
           {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
        std::vector<float> gate(count), up(count), out(count + 1, 77.0f);
        for (float& z : gate) z = value(random);
        for (float& u : up) u = value(random);

        ActivateGate(activation, gate.data(), up.data(), count, out.data());

        for (int i = 0; i < count; ++i) {
          const double expected = Activate(activation, gate[i]) * up[i];
          ASSERT_NEAR(out[i], expected, Tolerance(expected, 20.0)) << gate[i];
        }
        EXPECT_EQ(out[count], 77.0f);
      }
    }
  }
}

TEST(SmoothTest, SoftCapIsThatOfDouble) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    for (const float cap : {0.5f, 30.0f, 50.0f}) {
      std::vector<float> x;
      for (int i = -30000; i <= 30000; ++i) x.push_back(static_cast<float>(i) * 1e-2f);
      for (float z = 1e-30f; z < 1e38f; z *= 7.0f) x.push_back(z);
      std::vector<float> out = x;

      SoftCapRow(cap, static_cast<int>(out.size()), out.data());

      for (std::size_t i = 0; i < x.size(); ++i) {
        const double expected = cap * std::tanh(static_cast<double>(x[i]) / cap);
        ASSERT_NEAR(out[i], expected, 5e-7 * std::abs(expected)) << x[i] << " cap " << cap;
      }
    }
  }
}

TEST(SmoothTest, SoftmaxIsThatOfDouble) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    std::mt19937 random(9);
    std::normal_distribution<float> value(0.0f, 5.0f);
    for (int count = 1; count < 70; ++count) {
      std::vector<float> x(count);
      for (float& logit : x) logit = value(random) + 300.0f;
      std::vector<float> out = x;
      out.push_back(77.0f);

      SoftmaxRow(count, out.data());

      const double max = *std::max_element(x.begin(), x.end());
      double total = 0;
      for (const float logit : x) total += std::exp(logit - max);
      for (int i = 0; i < count; ++i) {
        const double expected = std::exp(x[i] - max) / total;
        ASSERT_NEAR(out[i], expected, 2e-6 * expected) << "logit " << i << " of " << count;
      }
      EXPECT_EQ(out[count], 77.0f);
    }
  }
}

}  // namespace
}  // namespace baton::engine::cpu
