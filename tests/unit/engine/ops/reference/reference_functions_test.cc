#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "checkpoint/tensor.h"
#include "engine/ops/reference/activation.h"
#include "engine/ops/reference/attention.h"
#include "engine/ops/reference/embedding.h"
#include "engine/ops/reference/experts.h"
#include "engine/ops/reference/kv_access.h"
#include "engine/ops/reference/matmul.h"
#include "engine/ops/reference/rms_norm.h"
#include "engine/ops/reference/rope.h"
#include "engine/ops/reference/softcap.h"

namespace baton::engine::reference {
namespace {

std::vector<float> RandomVector(std::mt19937& random, int count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

checkpoint::Tensor FloatTensor(const std::vector<float>& values, std::int64_t rows) {
  checkpoint::Tensor tensor;
  tensor.dtype = checkpoint::DType::kF32;
  tensor.shape = {rows, static_cast<std::int64_t>(values.size()) / rows};
  tensor.data = std::as_bytes(std::span(values));
  return tensor;
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
  const checkpoint::Tensor weight = FloatTensor(w, kOutColumns);
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

  AttentionRow(q.data(), keys.data(), values.data(), kPositions, kDim, 0.3f, /*softcap=*/0.0f,
               scores, out.data());

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

  AttentionRow(q.data(), keys.data(), values.data(), 2, 1, 1.0f, /*softcap=*/0.0f, scores,
               out.data());

  EXPECT_FLOAT_EQ(out[0], 1.0f);  // the second weighs e^-100
}

TEST(AttentionTest, CapsScoresBeforeTheSoftmax) {
  const std::vector<float> q = {2.0f}, keys = {10.0f, -1.0f}, values = {1.0f, 0.0f};
  std::vector<float> out(1), scores;

  AttentionRow(q.data(), keys.data(), values.data(), 2, 1, /*scale=*/0.5f, /*softcap=*/3.0f, scores,
               out.data());

  const double first = 3 * std::tanh(10.0 / 3), second = 3 * std::tanh(-1.0 / 3);
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(1 / (1 + std::exp(second - first))));
}

TEST(SoftCapTest, BendsTowardsTheCapAndZeroMeansNone) {
  std::vector<float> values = {0.0f, 3.0f, -1000.0f}, untouched = values;

  SoftCap(12.0f, values.size(), values.data());
  SoftCap(0.0f, untouched.size(), untouched.data());

  EXPECT_EQ(values[0], 0.0f);
  EXPECT_FLOAT_EQ(values[1], static_cast<float>(12 * std::tanh(0.25)));
  EXPECT_FLOAT_EQ(values[2], -12.0f);
  EXPECT_EQ(untouched[2], -1000.0f);
}

TEST(ActivationTest, SiluIsTheLogisticFunctionTimesItsArgument) {
  EXPECT_FLOAT_EQ(Activate(Activation::kSilu, 1.0f), 1.0f / (1.0f + std::exp(-1.0f)));
  EXPECT_EQ(Activate(Activation::kSilu, 0.0f), 0.0f);
  EXPECT_NEAR(Activate(Activation::kSilu, -200.0f), 0.0f, 1e-30);
}

TEST(ActivationTest, TheTwoGelusDiffer) {
  // Values of torch.nn.functional.gelu in float64.
  EXPECT_FLOAT_EQ(Activate(Activation::kGelu, 1.0f), 0.8413447460685429f);
  EXPECT_FLOAT_EQ(Activate(Activation::kGelu, -3.0f), -0.0040496940948902f);
  EXPECT_FLOAT_EQ(Activate(Activation::kGeluTanh, 1.0f), 0.8411919906082768f);
  EXPECT_NEAR(Activate(Activation::kGeluTanh, -3.0f), -0.0036373920817729f, 1e-9);
}

TEST(ActivationTest, IsFiniteAtTheEndsOfTheRange) {
  for (const Activation activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
    for (const float end : {std::numeric_limits<float>::max(), 1e5f}) {
      EXPECT_EQ(Activate(activation, end), end);
      EXPECT_EQ(Activate(activation, -end), 0.0f);
    }
  }
}

TEST(GateTest, MultipliesTheActivatedGateByUp) {
  const std::vector<float> up = {2.0f, 3.0f};
  std::vector<float> gate = {1.0f, -1.0f};

  Gate(Activation::kGelu, up.data(), up.size(), gate.data());

  EXPECT_FLOAT_EQ(gate[0], 2 * Activate(Activation::kGelu, 1.0f));
  EXPECT_FLOAT_EQ(gate[1], 3 * Activate(Activation::kGelu, -1.0f));
}

TEST(ChooseExpertsTest, TakesTheLargestInTheOrderOfTheirIndex) {
  const std::vector<float> logits = {0.0f, 3.0f, -1.0f, 2.0f};

  const auto normalized = ChooseExperts(logits, 2, /*normalize=*/true);
  const auto plain = ChooseExperts(logits, 2, /*normalize=*/false);

  ASSERT_EQ(normalized.size(), 2u);
  EXPECT_EQ(normalized[0].expert, 1);
  EXPECT_EQ(normalized[1].expert, 3);
  EXPECT_FLOAT_EQ(normalized[0].weight, static_cast<float>(1 / (1 + std::exp(-1.0))));
  EXPECT_FLOAT_EQ(normalized[1].weight, static_cast<float>(1 / (1 + std::exp(1.0))));
  const double total = 1 + std::exp(3.0) + std::exp(-1.0) + std::exp(2.0);
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_FLOAT_EQ(plain[0].weight, static_cast<float>(std::exp(3.0) / total));
  EXPECT_FLOAT_EQ(plain[1].weight, static_cast<float>(std::exp(2.0) / total));
}

TEST(ChooseExpertsTest, OfEqualsTheLowerIndexGoesFirst) {
  const std::vector<float> logits = {1.0f, 5.0f, 5.0f, 5.0f};

  const auto shares = ChooseExperts(logits, 2, true);

  EXPECT_EQ(shares[0].expert, 1);
  EXPECT_EQ(shares[1].expert, 2);
  EXPECT_EQ(shares[0].weight, 0.5f);
}

TEST(ChooseExpertsTest, LogitsThatAreNotNumbersGiveDistinctExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {nan, 1.0f, nan, nan};

  const auto shares = ChooseExperts(logits, 3, true);

  ASSERT_EQ(shares.size(), 3u);
  EXPECT_LT(shares[0].expert, shares[1].expert);
  EXPECT_LT(shares[1].expert, shares[2].expert);
}

TEST(ChooseExpertsTest, HugeLogitsDoNotOverflow) {
  const std::vector<float> logits = {-3e38f, 3e38f};

  const auto shares = ChooseExperts(logits, 1, false);

  EXPECT_EQ(shares[0].expert, 1);
  EXPECT_EQ(shares[0].weight, 1.0f);
}

TEST(EmbeddingTest, ScalesTheRowsOfTheTokens) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::vector<float> x(4);

  Embedding(FloatTensor(values, 3), /*scale=*/8.0f, std::vector<std::int32_t>{2, 0}, x.data());

  EXPECT_EQ(x, (std::vector<float>{40, 48, 8, 16}));
}

TEST(MatMulTest, FollowsTheColumnOrder) {
  const std::vector<float> stored = {10, 20, 30}, x = {1, 2, 3};
  const std::vector<std::int32_t> order = {2, 0, 1};  // stored column 0 multiplies x[2]
  checkpoint::Tensor weight = FloatTensor(stored, 1);
  weight.column_order = order;
  std::vector<float> out(1), scratch;

  MatMul(weight, x.data(), 1, out.data(), scratch);

  EXPECT_EQ(out[0], 10 * 3 + 20 * 1 + 30 * 2);
}

TEST(KvAccessTest, ReadsOnlyWhatIsAskedFor) {
  const KvLayout layout{
      .num_layers = 1, .num_kv_heads = 2, .head_dim = 1, .block_size = 2, .dtype = KvDType::kF32};
  auto kv = KvPool::Create(layout, 3);
  ASSERT_TRUE(kv.ok()) << kv.status();
  const std::vector<BlockId> table = {2, 0, 1};
  for (int position = 0; position < 6; ++position) {
    const float heads[] = {static_cast<float>(position), static_cast<float>(-position)};
    WriteKv(**kv, 0, table, position, KvHalf::kKey, heads);
  }
  // The first block's entry may already be gone when the window has passed it.
  const std::vector<BlockId> freed = {1 << 30, 0, 1};
  std::vector<float> out(4, 99.0f);

  ReadKv(**kv, 0, freed, /*begin=*/2, /*end=*/5, /*kv_head=*/1, KvHalf::kKey, out.data());

  EXPECT_EQ(out, (std::vector<float>{-2, -3, -4, 99}));
}

}  // namespace
}  // namespace baton::engine::reference
