// Row kernels against plain loops in double, on every instruction set of this processor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/tensor.h"
#include "engine/ops/cpu/kernels.h"
#include "tests/unit/engine/ops/cpu/targets.h"

namespace baton::engine::cpu {
namespace {

std::vector<float> RandomRow(int count, float scale, std::mt19937& random) {
  std::normal_distribution<float> value(0.0f, scale);
  std::vector<float> row(count);
  for (float& x : row) x = value(random);
  return row;
}

TEST(RowsTest, RmsNormIsThatOfDouble) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    std::mt19937 random(3);
    for (const int columns : {1, 7, 16, 33, 64, 576, 2049}) {
      SCOPED_TRACE(absl::StrCat(columns, " columns"));
      const std::vector<float> x = RandomRow(columns, 100.0f, random);
      const std::vector<float> weight = RandomRow(columns, 1.0f, random);
      std::vector<float> out(columns);

      RmsNormRow(x.data(), weight.data(), 1e-5f, columns, out.data());

      double squares = 0;
      for (const float value : x) squares += static_cast<double>(value) * value;
      const double factor = 1.0 / std::sqrt(squares / columns + 1e-5);
      for (int i = 0; i < columns; ++i) {
        ASSERT_NEAR(out[i], x[i] * factor * weight[i], 1e-6 * std::abs(x[i] * factor * weight[i]));
      }
    }
  }
}

TEST(RowsTest, QuantizedValuesAreWithinHalfAUnit) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    std::mt19937 random(4);
    std::vector<float> x = RandomRow(8 * kGroup, 1.0f, random);
    for (int i = 0; i < kGroup; ++i) {
      x[kGroup + i] = 0.0f;         // a group of zeros
      x[2 * kGroup + i] *= 1e-36f;  // of almost nothing
      x[3 * kGroup + i] *= 1e30f;   // of huge values
    }
    std::vector<QuantizedGroup> groups(8);

    QuantizeRow(x.data(), 8 * kGroup, groups.data());

    for (int g = 0; g < 8; ++g) {
      SCOPED_TRACE(absl::StrCat("group ", g));
      const QuantizedGroup& group = groups[g];
      int sum = 0;
      int low_sum = 0;
      for (int i = 0; i < kGroup; ++i) {
        const int value = 128 * group.values[0][i] + group.values[1][i];
        sum += value;
        if (i < 16) low_sum += value;
        EXPECT_LE(std::abs(value), 127 * 128);
        EXPECT_NE(group.values[0][i], -128);  // sign tricks of some kernels cannot negate it
        const double error = std::abs(static_cast<double>(group.scale) * value - x[g * kGroup + i]);
        EXPECT_LE(error, std::max(0.501 * group.scale, 1e-30));
      }
      EXPECT_EQ(group.sum, sum);
      EXPECT_EQ(group.low_sum, low_sum);
      EXPECT_FLOAT_EQ(group.scaled_sum, group.scale * static_cast<float>(sum));
    }
    EXPECT_EQ(groups[1].scale, 0.0f);
  }
}

TEST(RowsTest, HalvesAreRoundedToNearestEvenAndNeverInfinite) {
  for (const std::int64_t target : KernelTargets()) {
    const ScopedTarget scope(target);
    std::mt19937 random(6);
    for (const int count : {1, 5, 16, 31, 64, 200}) {
      std::vector<float> x = RandomRow(count, 3.0f, random);
      x[0] = 1e6f;
      x[count - 1] = -1e9f;
      if (count > 4) x[2] = 1.0f + 1.0f / 2048.0f;  // a tie
      std::vector<std::uint16_t> out(count);

      FloatsToHalves(x.data(), count, out.data());

      for (int i = 0; i < count; ++i) {
        const float bounded = std::clamp(x[i], -65504.0f, 65504.0f);
        ASSERT_EQ(out[i], checkpoint::FloatToHalf(bounded)) << x[i];
      }
    }
  }
}

}  // namespace
}  // namespace baton::engine::cpu
