// The reference backend against the definitions in double precision, one feature of the plan at a
// time and all together.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/kv/kv_pool.h"
#include "engine/model_runner.h"
#include "engine/ops/ops.h"
#include "tests/support/double_model.h"
#include "tests/support/random_checkpoint.h"

namespace baton::engine {
namespace {

using checkpoint::ModelMetadata;

struct Feature {
  std::string name;
  std::function<void(ModelMetadata&)> set;
};

void PrintTo(const Feature& feature, std::ostream* out) { *out << feature.name; }

void SetExperts(ModelMetadata& metadata, bool normalize) {
  metadata.num_experts = 5;
  metadata.experts_per_token = 2;
  metadata.expert_intermediate_size = 32;
  metadata.normalize_expert_weights = normalize;
}

void SetWindow(ModelMetadata& metadata) {
  metadata.sliding_window = 5;
  metadata.windowed_layers = {true, false};
}

void SetNoRope(ModelMetadata& metadata) { metadata.no_rope_layers = {true, false}; }

void SetLocalRope(ModelMetadata& metadata) {
  SetWindow(metadata);
  metadata.local_rope = metadata.rope;
  metadata.local_rope->theta = 37.0f;
}

void SetAll(ModelMetadata& metadata) {
  SetLocalRope(metadata);
  SetExperts(metadata, true);
  metadata.norm_offset = 1.0f;
  metadata.attention_bias = metadata.output_bias = metadata.mlp_bias = true;
  metadata.qk_norm = metadata.post_norms = true;
  metadata.activation = Activation::kGeluTanh;
  metadata.embedding_scale = 8.0f;
  metadata.attention_scale = 0.4f;
  metadata.attention_softcap = 2.0f;
  metadata.logit_softcap = 3.0f;
}

std::vector<Feature> Features() {
  return {
      {"Plain", [](ModelMetadata&) {}},
      {"Untied", [](ModelMetadata& m) { m.tied_embeddings = false; }},
      {"NormOffset", [](ModelMetadata& m) { m.norm_offset = 1.0f; }},
      {"AttentionBias", [](ModelMetadata& m) { m.attention_bias = true; }},
      {"OutputBias", [](ModelMetadata& m) { m.output_bias = true; }},
      {"MlpBias", [](ModelMetadata& m) { m.mlp_bias = true; }},
      {"QkNorm", [](ModelMetadata& m) { m.qk_norm = true; }},
      {"PostNorms", [](ModelMetadata& m) { m.post_norms = true; }},
      {"GeluTanh", [](ModelMetadata& m) { m.activation = Activation::kGeluTanh; }},
      {"Gelu", [](ModelMetadata& m) { m.activation = Activation::kGelu; }},
      {"EmbeddingScale", [](ModelMetadata& m) { m.embedding_scale = 8.0f; }},
      {"AttentionScale", [](ModelMetadata& m) { m.attention_scale = 0.4f; }},
      {"AttentionSoftCap", [](ModelMetadata& m) { m.attention_softcap = 0.7f; }},
      {"LogitSoftCap", [](ModelMetadata& m) { m.logit_softcap = 0.5f; }},
      {"PartialRope", [](ModelMetadata& m) { m.rope.dim = 8; }},
      {"InterleavedRope", [](ModelMetadata& m) { m.rope.interleaved = true; }},
      {"NoRope", SetNoRope},
      {"Window", SetWindow},
      {"LocalRope", SetLocalRope},
      {"Experts", [](ModelMetadata& m) { SetExperts(m, true); }},
      {"ExpertsNotNormalized", [](ModelMetadata& m) { SetExperts(m, false); }},
      {"OddHeadDim",
       [](ModelMetadata& m) {
         m.head_dim = 24;
         m.rope.dim = 24;
       }},
      {"All", SetAll},
      {"AllWithoutRope",
       [](ModelMetadata& m) {
         SetAll(m);
         SetNoRope(m);
       }},
  };
}

class ReferenceOpsTest : public ::testing::TestWithParam<Feature> {
 protected:
  void SetUp() override {
    metadata_ = testing::TinyMetadata();
    metadata_.rope.theta = 100.0f;
    GetParam().set(metadata_);
    checkpoint_ = testing::MakeRandomCheckpoint(metadata_, checkpoint::DType::kF32, 21);
    auto plan = MakeModelPlan(metadata_, 0);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
  }

  // Logits after each of `tokens`, computed in steps of `chunk` rows.
  std::vector<std::vector<float>> Run(const std::vector<std::int32_t>& tokens, int chunk) {
    std::vector<std::vector<float>> rows;
    auto runner = ModelRunner::Load(checkpoint_, plan_, MakeReferenceOps(), chunk, nullptr);
    EXPECT_TRUE(runner.ok()) << runner.status();
    if (!runner.ok()) return rows;
    auto kv = KvPool::Create((*runner)->MakeKvLayout(4, KvDType::kF32), 16);
    EXPECT_TRUE(kv.ok()) << kv.status();
    std::vector<BlockId> blocks = {9, 3, 4, 0, 15, 7, 1, 2};
    for (std::size_t start = 0; start < tokens.size(); start += chunk) {
      const std::size_t count = std::min<std::size_t>(chunk, tokens.size() - start);
      const SequenceStep step{.tokens = std::span(tokens).subspan(start, count),
                              .start_position = static_cast<int>(start),
                              .block_table = blocks,
                              .logits = LogitRows::kAll};
      const absl::Status status =
          (*runner)->Step({&step, 1}, **kv, {.on_logits = [&](int, int, std::span<float> logits) {
                            rows.emplace_back(logits.begin(), logits.end());
                          }});
      EXPECT_TRUE(status.ok()) << status;
    }
    return rows;
  }

  testing::Turn TurnOf(int rope, int position, int pair) const {
    const bool last = rope + 1 == static_cast<int>(plan_.ropes.size());
    if (last && !metadata_.no_rope_layers.empty()) return {};
    const auto& stated = rope == 0 ? metadata_.rope : *metadata_.local_rope;
    const double angle =
        position / std::pow(static_cast<double>(stated.theta), 2.0 * pair / stated.dim);
    return {std::cos(angle), std::sin(angle)};
  }

  ModelMetadata metadata_;
  std::shared_ptr<const checkpoint::Checkpoint> checkpoint_;
  ModelPlan plan_;
};

TEST_P(ReferenceOpsTest, LogitsAreThoseOfTheDefinitions) {
  std::mt19937 random(5);
  std::vector<std::int32_t> tokens(21);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % metadata_.vocab_size);

  const auto logits = Run(tokens, /*chunk=*/6);
  const auto expected = testing::DoubleForward(
      *checkpoint_, plan_, tokens,
      [&](int rope, int position, int pair) { return TurnOf(rope, position, pair); });

  ASSERT_EQ(logits.size(), expected.size());
  double highest_error = 0, highest = 0;
  for (std::size_t row = 0; row < expected.size(); ++row) {
    for (std::size_t i = 0; i < expected[row].size(); ++i) {
      highest_error = std::max(highest_error, std::abs(logits[row][i] - expected[row][i]));
      highest = std::max(highest, std::abs(expected[row][i]));
    }
  }
  EXPECT_GT(highest, 0.3);
  EXPECT_LE(highest_error, 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Features, ReferenceOpsTest, ::testing::ValuesIn(Features()),
                         [](const auto& tested) { return tested.param.name; });

// Slots that the window hides hold NaN, and their blocks are no longer in the table.
TEST(ReferenceWindowTest, HiddenSlotsAreNotRead) {
  ModelPlan plan;
  plan.layers.push_back(
      {.num_heads = 2, .num_kv_heads = 1, .head_dim = 2, .attention_scale = 1.0f, .window = 3});
  const KvLayout layout{
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .block_size = 2, .dtype = KvDType::kF32};
  auto kv = KvPool::Create(layout, 3);
  ASSERT_TRUE(kv.ok()) << kv.status();
  // Positions 0..5; rows at 4 and 5 see 2..4 and 3..5. Scores are all equal: out is a mean.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {nan, nan, 3, 4, 5, 6};
  for (int position = 0; position < 6; ++position) {
    float* block = reinterpret_cast<float*>((*kv)->Block(0, position / 2).data());
    for (int i = 0; i < 2; ++i) {
      block[position % 2 * 2 + i] = position < 2 ? nan : 0.0f;
      block[4 + position % 2 * 2 + i] = values[position];
    }
  }
  const std::vector<BlockId> table = {-1, 1, 2};
  const std::vector<std::int32_t> tokens = {0, 0}, positions = {4, 5};
  const BatchSequence sequence{
      .first_row = 0, .num_rows = 2, .start_position = 4, .block_table = table};
  const RaggedBatch batch{
      .tokens = tokens, .positions = positions, .sequences = {&sequence, 1}, .angles = {}};
  auto ops = MakeReferenceOps();
  const auto q = *ops->NewMatrix(2, 4), out = *ops->NewMatrix(2, 4);

  const absl::Status status = ops->PagedAttention(plan, 0, batch, q->matrix(), **kv, out->matrix());

  ASSERT_TRUE(status.ok()) << status;
  for (int i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(out->matrix().f32()[i], 4.0f) << i;
    EXPECT_FLOAT_EQ(out->matrix().f32()[4 + i], 5.0f) << i;
  }
}

TEST(ReferenceWeightsTest, NamesAMissingNormOfQ) {
  auto metadata = testing::TinyMetadata();
  const auto checkpoint = testing::MakeRandomCheckpoint(metadata, checkpoint::DType::kF32, 1);
  metadata.qk_norm = true;
  auto plan = MakeModelPlan(metadata, 0);
  ASSERT_TRUE(plan.ok()) << plan.status();

  const auto weights = MakeReferenceOps()->LoadLayer(*checkpoint, *plan, 1);

  EXPECT_EQ(weights.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(weights.status().message().find("layers.1.q_norm.weight"), absl::string_view::npos)
      << weights.status();
}

}  // namespace
}  // namespace baton::engine
