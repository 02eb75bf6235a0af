#include "engine/model/model_plan.h"

#include <gtest/gtest.h>

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
