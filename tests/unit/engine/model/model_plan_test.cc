#include "engine/model/model_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace baton::engine {
namespace {

using checkpoint::ModelMetadata;
using checkpoint::RopeScaling;

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

TEST(ModelPlanTest, RotatesByPositionTimesFrequency) {
  auto plan = MakeModelPlan(SmallLlama(), 40);

  ASSERT_TRUE(plan.ok()) << plan.status();
  const RopeTable& table = plan->rope_tables.at(plan->layers[0].rope_table);
  ASSERT_EQ(table.cos.size(), 40u * 8);
  for (const int pair : {0, 3, 7}) {
    const double angle = 39 * std::pow(10000.0, -2.0 * pair / 16);
    EXPECT_FLOAT_EQ(table.cos[39 * 8 + pair], static_cast<float>(std::cos(angle)));
    EXPECT_FLOAT_EQ(table.sin[39 * 8 + pair], static_cast<float>(std::sin(angle)));
  }
}

TEST(ModelPlanTest, LinearScalingSlowsEveryPair) {
  ModelMetadata metadata = SmallLlama();
  metadata.rope.scaling = RopeScaling::kLinear;
  metadata.rope.factor = 4.0f;

  auto plan = MakeModelPlan(metadata, 0);

  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FLOAT_EQ(plan->rope_tables[0].sin[8 * 8], static_cast<float>(std::sin(8.0 / 4.0)));
}

TEST(ModelPlanTest, Llama3ScalingKeepsShortWavesAndSlowsLongOnes) {
  ModelMetadata metadata = SmallLlama();
  metadata.rope.theta = 500000.0f;
  metadata.rope.scaling = RopeScaling::kLlama3;
  metadata.rope.factor = 8.0f;
  metadata.rope.original_max_position = 8192;

  auto plan = MakeModelPlan(metadata, 0);

  ASSERT_TRUE(plan.ok()) << plan.status();
  const RopeTable& table = plan->rope_tables[0];
  const double slowest = std::pow(500000.0, -14.0 / 16);
  // Pair 5: wavelength 2 pi * 500000^(10/16) = 22923, longer than 8192, so slowed in full; pair 4:
  // 4443, between 2048 and 8192, so blended.
  const double blended = std::pow(500000.0, -8.0 / 16);
  const double smooth = (8192 / (2 * std::numbers::pi / blended) - 1.0) / 3.0;
  EXPECT_FLOAT_EQ(table.sin[1 * 8 + 0], static_cast<float>(std::sin(1.0)));
  EXPECT_FLOAT_EQ(table.sin[49 * 8 + 7], static_cast<float>(std::sin(49 * slowest / 8)));
  EXPECT_FLOAT_EQ(table.sin[49 * 8 + 4],
                  static_cast<float>(std::sin(49 * blended * ((1 - smooth) / 8 + smooth))));
}

TEST(ModelPlanTest, RefusesScalingItDoesNotComputeByName) {
  ModelMetadata metadata = SmallLlama();
  metadata.rope.scaling = RopeScaling::kYarn;
  metadata.rope.factor = 4.0f;

  auto plan = MakeModelPlan(metadata, 0);

  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(plan.status().message().find("yarn"), absl::string_view::npos) << plan.status();
}

TEST(ModelPlanTest, RefusesUnknownArchitecturesByName) {
  ModelMetadata metadata = SmallLlama();
  metadata.architecture = "rwkv";

  auto plan = MakeModelPlan(metadata, 0);

  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(plan.status().message().find("rwkv"), absl::string_view::npos) << plan.status();
}

TEST(ModelPlanTest, RefusesAContextBeyondTheModels) {
  EXPECT_EQ(MakeModelPlan(SmallLlama(), 51).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::engine
