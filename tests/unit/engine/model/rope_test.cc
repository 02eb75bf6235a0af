#include "engine/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace baton::engine {
namespace {

using checkpoint::RopeMetadata;
using checkpoint::RopeScaling;

constexpr int kDim = 16;

// sin of pair `pair` of a row at `position` in a text of `length` tokens.
float SinOf(const RopeMetadata& metadata, int position, int pair, int length) {
  auto rope = MakeRope(metadata, kDim);
  EXPECT_TRUE(rope.ok()) << rope.status();
  if (!rope.ok()) return 0;
  RopeAngleBuffer buffer;
  return buffer.Compute({&*rope, 1}, {{position}}, {{length}})[0].sin[pair];
}

RopeMetadata Plain() { return {.theta = 10000.0f, .dim = kDim}; }

TEST(RopeTest, RotatesByPositionTimesFrequency) {
  auto rope = MakeRope(Plain(), kDim);
  ASSERT_TRUE(rope.ok()) << rope.status();
  RopeAngleBuffer buffer;

  const auto angles = buffer.Compute({&*rope, 1}, {{7, 39}}, {{8, 40}});

  for (const int pair : {0, 3, 7}) {
    const double angle = 39 * std::pow(10000.0, -2.0 * pair / kDim);
    EXPECT_FLOAT_EQ(angles[0].cos[8 + pair], static_cast<float>(std::cos(angle)));
    EXPECT_FLOAT_EQ(angles[0].sin[8 + pair], static_cast<float>(std::sin(angle)));
  }
}

TEST(RopeTest, LinearScalingSlowsEveryPair) {
  RopeMetadata rope = Plain();
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 4.0f;

  EXPECT_FLOAT_EQ(SinOf(rope, 8, 0, 9), static_cast<float>(std::sin(8.0 / 4.0)));
}

TEST(RopeTest, Llama3ScalingKeepsShortWavesAndSlowsLongOnes) {
  RopeMetadata rope = Plain();
  rope.theta = 500000.0f;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8.0f;
  rope.original_max_position = 8192;

  const double slowest = std::pow(500000.0, -14.0 / 16);
  // Pair 5: wavelength 2 pi * 500000^(10/16) = 22923, longer than 8192, so slowed in full; pair 4:
  // 4443, between 2048 and 8192, so blended.
  const double blended = std::pow(500000.0, -8.0 / 16);
  const double smooth = (8192 / (2 * std::numbers::pi / blended) - 1.0) / 3.0;
  EXPECT_FLOAT_EQ(SinOf(rope, 1, 0, 2), static_cast<float>(std::sin(1.0)));
  EXPECT_FLOAT_EQ(SinOf(rope, 49, 7, 50), static_cast<float>(std::sin(49 * slowest / 8)));
  EXPECT_FLOAT_EQ(SinOf(rope, 49, 4, 50),
                  static_cast<float>(std::sin(49 * blended * ((1 - smooth) / 8 + smooth))));
}

TEST(RopeTest, DynamicScalingGrowsTheBaseOfLongTexts) {
  RopeMetadata rope = Plain();
  rope.scaling = RopeScaling::kDynamic;
  rope.factor = 2.0f;
  rope.original_max_position = 64;

  const double base = 10000.0 * std::pow(2.0 * 100 / 64 - 1, 16.0 / 14);
  EXPECT_FLOAT_EQ(SinOf(rope, 5, 3, 64), SinOf(Plain(), 5, 3, 64));
  EXPECT_FLOAT_EQ(SinOf(rope, 5, 3, 100),
                  static_cast<float>(std::sin(5 * std::pow(base, -6.0 / 16))));
}

TEST(RopeTest, LongRopeSwitchesFactorsByTheLengthOfTheText) {
  RopeMetadata rope = Plain();
  rope.scaling = RopeScaling::kLongRope;
  rope.factor = 4.0f;
  rope.original_max_position = 32;
  rope.short_factors.assign(8, 1.0f);
  rope.long_factors.assign(8, 2.0f);

  const double magnitude = std::sqrt(1 + std::log(4.0) / std::log(32.0));
  EXPECT_FLOAT_EQ(SinOf(rope, 3, 0, 32), static_cast<float>(magnitude * std::sin(3.0)));
  EXPECT_FLOAT_EQ(SinOf(rope, 3, 0, 33), static_cast<float>(magnitude * std::sin(1.5)));
}

TEST(RopeTest, RefusesFactorsThatDoNotFit) {
  RopeMetadata rope = Plain();
  rope.scaling = RopeScaling::kLongRope;
  rope.original_max_position = 32;
  rope.short_factors.assign(8, 1.0f);
  rope.long_factors.assign(7, 1.0f);

  const auto made = MakeRope(rope, kDim);

  EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(made.status().message().find("long factors: 7"), absl::string_view::npos)
      << made.status();
}

}  // namespace
}  // namespace baton::engine
