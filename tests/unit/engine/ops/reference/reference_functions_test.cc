#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "checkpoint/tensor.h"
#include "engine/ops/reference/attention.h"
#include "engine/ops/reference/matmul.h"
#include "engine/ops/reference/rms_norm.h"
#include "engine/ops/reference/rope.h"
#include "engine/ops/reference/swiglu.h"

namespace baton::engine::reference {
namespace {

std::vector<float> RandomVector(std::mt19937& random, int count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(RmsNormTest, DividesByTheRootOfTheMeanSquare) {
  const std::vector<float> x = {3.0f, 4.0f}, weight = {1.0f, 2.0f};
  std::vector<float> out(2);

  RmsNormRow(x, weight, /*eps=*/0.0f, out.data());

  EXPECT_FLOAT_EQ(out[0], 3.0f / std::sqrt(12.5f));
  EXPECT_FLOAT_EQ(out[1], 2.0f * 4.0f / std::sqrt(12.5f));
}

TEST(RmsNormTest, EpsKeepsAZeroRowFinite) {
  const std::vector<float> zeros(8, 0.0f), weight(8, 1.0f);
  std::vector<float> out(8, 1.0f);

  RmsNormRow(zeros, weight, 1e-5f, out.data());

  EXPECT_EQ(out, zeros);
}

TEST(RopeRowTest, RotatesNeighboursWhenInterleavedAndHalvesWhenNot) {
  Rope rope;
  rope.dim = 4;
  const std::vector<float> cos = {std::cos(0.5f), std::cos(0.25f)};
  const std::vector<float> sin = {std::sin(0.5f), std::sin(0.25f)};
  std::vector<float> halves = {1, 2, 3, 4, 9}, neighbours = halves;  // the fifth is not rotated

  RopeRow(rope, cos.data(), sin.data(), /*num_heads=*/1, /*head_dim=*/5, halves.data());
  rope.interleaved = true;
  RopeRow(rope, cos.data(), sin.data(), 1, 5, neighbours.data());

  EXPECT_FLOAT_EQ(halves[0], 1 * std::cos(0.5f) - 3 * std::sin(0.5f));
  EXPECT_FLOAT_EQ(halves[2], 3 * std::cos(0.5f) + 1 * std::sin(0.5f));
  EXPECT_FLOAT_EQ(halves[3], 4 * std::cos(0.25f) + 2 * std::sin(0.25f));
  EXPECT_FLOAT_EQ(neighbours[0], 1 * std::cos(0.5f) - 2 * std::sin(0.5f));
  EXPECT_FLOAT_EQ(neighbours[3], 4 * std::cos(0.25f) + 3 * std::sin(0.25f));
  EXPECT_EQ(halves[4], 9);
}

TEST(MatMulTest, AgreesWithSumsInDouble) {
  std::mt19937 random(3);
  constexpr int kRows = 5, kColumns = 103, kOutColumns = 7;  // no multiple of any lane count
  const auto x = RandomVector(random, kRows * kColumns);
  const auto w = RandomVector(random, kOutColumns * kColumns);
  checkpoint::Tensor weight;
  weight.dtype = checkpoint::DType::kF32;
  weight.shape = {kOutColumns, kColumns};
  weight.data = std::as_bytes(std::span(w));
  std::vector<float> out(kRows * kOutColumns), scratch;

  MatMul(weight, x.data(), kRows, out.data(), scratch);

  for (int t = 0; t < kRows; ++t) {
    for (int r = 0; r < kOutColumns; ++r) {
      const double expected = std::inner_product(
          x.begin() + t * kColumns, x.begin() + (t + 1) * kColumns, w.begin() + r * kColumns, 0.0);
      EXPECT_NEAR(out[t * kOutColumns + r], expected, 1e-5) << "row " << t << ", column " << r;
    }
  }
}

TEST(AttentionTest, WeighsValuesByTheSoftmaxOfScores) {
  std::mt19937 random(4);
  constexpr int kDim = 8, kPositions = 21;
  const auto q = RandomVector(random, kDim);
  const auto keys = RandomVector(random, kDim * kPositions);
  const auto values = RandomVector(random, kDim * kPositions);
  std::vector<float> out(kDim), scores;

  AttentionRow(q.data(), keys.data(), values.data(), kPositions, kDim, 0.3f, scores, out.data());

  std::vector<double> expected(kDim, 0.0);
  double total = 0;
  for (int p = 0; p < kPositions; ++p) {
    const double weight =
        std::exp(0.3 * std::inner_product(q.begin(), q.end(), keys.begin() + p * kDim, 0.0));
    total += weight;
    for (int i = 0; i < kDim; ++i) expected[i] += weight * values[p * kDim + i];
  }
  for (int i = 0; i < kDim; ++i) EXPECT_NEAR(out[i], expected[i] / total, 1e-6) << i;
}

TEST(AttentionTest, HugeScoresDoNotOverflow) {
  const std::vector<float> q = {100.0f}, keys = {100.0f, 99.0f}, values = {1.0f, 2.0f};
  std::vector<float> out(1), scores;

  AttentionRow(q.data(), keys.data(), values.data(), 2, 1, 1.0f, scores, out.data());

  EXPECT_FLOAT_EQ(out[0], 1.0f);  // the second weighs e^-100
}

TEST(SwiGluTest, GatesByTheLogisticFunction) {
  const std::vector<float> up = {2.0f, 3.0f, 5.0f};
  std::vector<float> gate = {1.0f, 0.0f, -200.0f};

  SwiGlu(up.data(), up.size(), gate.data());

  EXPECT_FLOAT_EQ(gate[0], 2.0f / (1.0f + std::exp(-1.0f)));
  EXPECT_FLOAT_EQ(gate[1], 0.0f);
  EXPECT_NEAR(gate[2], 0.0f, 1e-30);
}

}  // namespace
}  // namespace baton::engine::reference
