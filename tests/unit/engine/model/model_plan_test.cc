#include "engine/model/model_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace baton::engine {
namespace {

using checkpoint::ModelMetadata;

ModelMetadata SmallLlama() {
  ModelMetadata metadata;
  metadata.architecture = "llama";
  metadata.hidden_size = 64;
  metadata.num_layers = 3;
  metadata.num_heads = 4;
  metadata.num_kv_heads = 2;
  metadata.head_dim = 16;
  metadata.intermediate_size = 96;
  metadata.vocab_size = 100;
  metadata.max_context = 50;
  metadata.rope.dim = 16;
  return metadata;
}

TEST(ModelPlanTest, DescribesEveryLayerOfALlama) {
  auto plan = MakeModelPlan(SmallLlama(), 0);

  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->layers.size(), 3u);
  EXPECT_EQ(plan->max_context, 50);
  EXPECT_EQ(plan->layers[2].num_kv_heads, 2);
  EXPECT_FLOAT_EQ(plan->layers[2].attention_scale, 0.25f);
}

TEST(ModelPlanTest, WindowedLayersSeeOnlyTheirWindow) {
  ModelMetadata metadata = SmallLlama();
  metadata.sliding_window = 16;
  metadata.windowed_layers = {true, false, true};

  auto plan = MakeModelPlan(metadata, 0);

  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layers[0].FirstVisible(15), 0);
  EXPECT_EQ(plan->layers[0].FirstVisible(16), 1);
  EXPECT_EQ(plan->layers[1].FirstVisible(40), 0);
  EXPECT_EQ(plan->layers[2].FirstVisible(40), 25);
}

TEST(ModelPlanTest, LayersWithoutRopeTurnByNoAngle) {
  ModelMetadata metadata = SmallLlama();
  metadata.no_rope_layers = {false, true, false};

  auto plan = MakeModelPlan(metadata, 0);

  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->ropes[plan->layers[0].rope].dim, 16);
  EXPECT_EQ(plan->layers[2].rope, plan->layers[0].rope);
  RopeAngleBuffer buffer;
  const std::vector<std::int32_t> positions = {0, 49};
  const RopeAngles none = buffer.Compute(plan->ropes, positions, positions)[plan->layers[1].rope];
  const int pairs = plan->ropes[plan->layers[1].rope].dim / 2;
  for (int i = 0; i < 2 * pairs; ++i) {
    EXPECT_EQ(none.cos[i], 1.0f);
    EXPECT_EQ(none.sin[i], 0.0f);
  }
}

TEST(ModelPlanTest, WindowedAndOtherLayersMayHaveTheirOwnRope) {
  ModelMetadata metadata = SmallLlama();
  metadata.sliding_window = 16;
  metadata.windowed_layers = {true, false, true};
  metadata.no_rope_layers = {false, false, true};
  metadata.local_rope = metadata.rope;
  metadata.local_rope->theta = 77;

  auto plan = MakeModelPlan(metadata, 0);

  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->ropes[plan->layers[0].rope].theta, 77);
  EXPECT_EQ(plan->ropes[plan->layers[1].rope].theta, 10000);
  EXPECT_EQ(plan->ropes[plan->layers[2].rope].frequencies, std::vector<double>{0.0});
}

TEST(ModelPlanTest, RefusesAListOfLayersThatDoesNotFit) {
  ModelMetadata metadata = SmallLlama();
  metadata.no_rope_layers = {true};

  EXPECT_EQ(MakeModelPlan(metadata, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ModelPlanTest, RefusesMoreExpertsPerTokenThanThereAre) {
  ModelMetadata metadata = SmallLlama();
  metadata.num_experts = 4;
  metadata.experts_per_token = 5;
  metadata.expert_intermediate_size = 32;

  EXPECT_EQ(MakeModelPlan(metadata, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ModelPlanTest, RefusesAContextBeyondTheModels) {
  EXPECT_EQ(MakeModelPlan(SmallLlama(), 51).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::engine
