#include "engine/sampling/softmax_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ArgMaxTest, TakesTheLowestOfEqualsAnywhere) {
  for (const std::size_t size : {1, 2, 15, 16, 17, 48, 100}) {
    for (std::size_t place = 0; place < size; ++place) {
      std::vector<float> values(size, -3.0f);
      for (std::size_t i = place; i < size; i += 7) values[i] = 2.0f;

      ASSERT_EQ(ArgMax(values), static_cast<std::int32_t>(place)) << size << " values";
    }
  }
}

TEST(ArgMaxTest, NothingButMinusInfinityGivesTheFirst) {
  EXPECT_EQ(ArgMax(std::vector<float>(33, -kInf)), 0);
}

TEST(SanitizeTest, OrdersWhatHasNoOrder) {
  std::vector<float> logits = {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 1.5f};

  Sanitize(logits);

  EXPECT_EQ(logits, (std::vector<float>{-kInf, std::numeric_limits<float>::max(), -kInf, 1.5f}));
}

TEST(SoftmaxWeightsTest, ExponentialsAreGoodToTheLastBits) {
  SoftmaxWeights weights;
  std::vector<float> logits;
  for (double x = 0; x > -85; x -= 0.00137) logits.push_back(static_cast<float>(x));

  weights.Compute(logits, 0.0f, 1.0f);

  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double expected = std::exp(static_cast<double>(logits[i]));
    ASSERT_NEAR(weights.weights()[i], expected, 2e-7 * expected) << logits[i];
  }
}

TEST(SoftmaxWeightsTest, TheBestWeighsOneAndTheHopelessNothing) {
  SoftmaxWeights weights;
  const std::vector<float> logits = {5.0f, -kInf, -100.0f, -std::numeric_limits<float>::max()};
  // At the second temperature the differences overflow to -inf.
  for (const float temperature : {1.0f, std::numeric_limits<float>::denorm_min()}) {
    weights.Compute(logits, 5.0f, temperature);

    EXPECT_EQ(std::vector<float>(weights.weights().begin(), weights.weights().end()),
              (std::vector<float>{1, 0, 0, 0}))
        << temperature;
    EXPECT_EQ(weights.total(), 1.0);
  }
}

// Property: Find inverts the running sum, for any draw and any run of weightless tokens.
TEST(SoftmaxWeightsTest, FindsTheTokenThatTheRunningSumReaches) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<float> logits(1 + random() % 5000);
    for (float& logit : logits) {
      logit = random() % 3 == 0 ? static_cast<float>(random() % 8) - 7.0f : -kInf;
    }
    logits[random() % logits.size()] = 0.0f;
    SoftmaxWeights weights;
    weights.Compute(logits, 0.0f, 1.0f);
    for (const double uniform : {0.0, 0.1, 0.5, 0.9999, 1.0 - 0x1p-53}) {
      const std::int32_t token = weights.Find(uniform);

      double before = 0;
      for (std::int32_t id = 0; id < token; ++id) before += weights.weights()[id];
      const double slack = 1e-9 * weights.total();
      EXPECT_GT(weights.weights()[token], 0.0f) << uniform;
      EXPECT_LE(before, uniform * weights.total() + slack) << uniform;
      EXPECT_GE(before + weights.weights()[token], uniform * weights.total() - slack) << uniform;
    }
  }
}

}  // namespace
}  // namespace baton::engine
