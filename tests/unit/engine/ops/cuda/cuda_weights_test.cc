#include "engine/ops/cuda/cuda_weights.h"

#include <gmock/gmock.h>

#include <string>

#include "engine/parallel/shard.h"
#include "tests/support/device_weights.h"
#include "tests/support/random_checkpoint.h"

namespace baton::engine::cuda {
namespace {

using checkpoint::DType;
using checkpoint::Tensor;

checkpoint::ModelMetadata Metadata() {
  checkpoint::ModelMetadata metadata = testing::TinyMetadata();
  metadata.hidden_size = 256;
  metadata.num_layers = 1;
  metadata.num_heads = 8;
  metadata.num_kv_heads = 2;  // fewer than some groups have ranks
  metadata.head_dim = 32;
  metadata.intermediate_size = 512;
  metadata.vocab_size = 70;
  return metadata;
}

// One map, or several side by side, and the part of them that a rank should hold.
struct Expected {
  std::string name;
  IndexRange rows, columns;
};

class CudaWeightsTest : public testing::DeviceWeightsTest {
 protected:
  static Shard ShardOf(const ModelPlan& plan, int world_size, int rank) {
    auto shard = MakeShard(plan, world_size, rank);
    EXPECT_TRUE(shard.ok()) << shard.status().ToString();
    return *shard;
  }
  static ModelPlan PlanOf(const checkpoint::ModelMetadata& metadata) {
    auto plan = MakeModelPlan(metadata, /*max_context=*/0);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return *plan;
  }

  // Expects `linear` to hold exactly these maps, rounded to T, with float biases.
  void ExpectMaps(const checkpoint::Checkpoint& checkpoint, const DeviceLinear& linear,
                  const std::vector<Expected>& maps, bool biases) {
    std::vector<std::uint16_t> got, want;
    std::vector<float> want_bias;
    for (const DeviceMatrix& part : linear.parts) {
      const auto bits = ReadBack(part.view());
      got.insert(got.end(), bits.begin(), bits.end());
    }
    for (const Expected& map : maps) {
      const Tensor& tensor = *checkpoint.Find(map.name + ".weight");
      const auto exact = testing::ExactWeights(tensor);
      for (int row = map.rows.begin; row < map.rows.end; ++row) {
        for (int c = map.columns.begin; c < map.columns.end; ++c) {
          want.push_back(testing::ToBits(ElementType::kBF16, exact[row * tensor.columns() + c]));
        }
      }
      if (!biases) continue;
      const Tensor& bias = *checkpoint.Find(map.name + ".bias");
      const auto values = testing::ExactWeights(bias);
      want_bias.insert(want_bias.end(), values.begin() + map.rows.begin,
                       values.begin() + map.rows.end);
    }
    EXPECT_EQ(linear.rows() * linear.columns(), static_cast<int>(want.size()));
    EXPECT_TRUE(got == want) << maps.front().name;
    EXPECT_EQ(linear.bias.bytes(), want_bias.size() * sizeof(float));
    if (want_bias.empty()) return;
    EXPECT_EQ(ToHost<float>(linear.bias, want_bias.size()), want_bias);
  }
};

TEST_F(CudaWeightsTest, ARankHoldsItsShareOfEveryMap) {
  for (const DType dtype :
       {DType::kBF16, DType::kF32, DType::kQ8_0, DType::kQ4_1, DType::kQ4_K, DType::kInt4}) {
    for (const bool act_order : {false, true}) {
      if (act_order && dtype != DType::kInt4) continue;
      checkpoint::ModelMetadata metadata = Metadata();
      metadata.attention_bias = metadata.output_bias = metadata.mlp_bias = dtype != DType::kQ4_1;
      const bool biases = metadata.mlp_bias;
      const auto checkpoint = testing::MakeRandomCheckpoint(metadata, dtype, 1, act_order);
      const ModelPlan plan = PlanOf(metadata);
      for (const auto& [world_size, rank] : {std::pair(1, 0), {2, 0}, {2, 1}, {4, 2}}) {
        SCOPED_TRACE(absl::StrCat(std::string(checkpoint::DTypeName(dtype)), " rank ", rank, " of ",
                                  world_size));
        const Shard shard = ShardOf(plan, world_size, rank);
        const LayerShard& own = shard.layers[0];

        const auto layer = LoadCudaLayer(*checkpoint, plan, shard, 0, uploader(ElementType::kBF16));

        ASSERT_TRUE(layer.ok()) << layer.status().ToString();
        const IndexRange heads = {own.heads.begin * 32, own.heads.end * 32};
        const IndexRange kv = {own.kv_heads.begin * 32, own.kv_heads.end * 32};
        const IndexRange hidden = {0, 256}, mlp = own.intermediate;
        ExpectMaps(
            *checkpoint, (*layer)->qkv,
            {{"layers.0.q", heads, hidden}, {"layers.0.k", kv, hidden}, {"layers.0.v", kv, hidden}},
            biases);
        ExpectMaps(*checkpoint, (*layer)->o, {{"layers.0.o", hidden, heads}}, biases && rank == 0);
        ExpectMaps(*checkpoint, (*layer)->gate_up,
                   {{"layers.0.gate", mlp, hidden}, {"layers.0.up", mlp, hidden}}, biases);
        ExpectMaps(*checkpoint, (*layer)->down, {{"layers.0.down", hidden, mlp}},
                   biases && rank == 0);
        EXPECT_TRUE((*layer)->router.parts.empty());
        const bool quantized =
            DeviceMatrix::FormatOf(*checkpoint->Find("layers.0.q.weight")) != WeightFormat::kDense;
        EXPECT_EQ((*layer)->qkv.parts.front().view().quantized(), quantized);
        // v has a column order of its own there.
        EXPECT_EQ((*layer)->qkv.parts.size(), act_order ? 3u : 1u);
      }
    }
  }
}

TEST_F(CudaWeightsTest, StacksExperts) {
  checkpoint::ModelMetadata metadata = Metadata();
  metadata.num_experts = 3;
  metadata.experts_per_token = 2;
  metadata.expert_intermediate_size = 256;
  const ModelPlan plan = PlanOf(metadata);
  for (const DType dtype : {DType::kBF16, DType::kQ4_0, DType::kQ6_K}) {
    SCOPED_TRACE(checkpoint::DTypeName(dtype));
    const auto checkpoint = testing::MakeRandomCheckpoint(metadata, dtype, 2);
    const Shard shard = ShardOf(plan, 2, 1);
    const IndexRange hidden = {0, 256}, mlp = shard.layers[0].intermediate;

    const auto layer = LoadCudaLayer(*checkpoint, plan, shard, 0, uploader(ElementType::kBF16));

    ASSERT_TRUE(layer.ok()) << layer.status().ToString();
    std::vector<Expected> gate_up, down;
    for (int expert = 0; expert < 3; ++expert) {
      const std::string prefix = absl::StrCat("layers.0.experts.", expert, ".");
      gate_up.push_back({prefix + "gate", mlp, hidden});
      gate_up.push_back({prefix + "up", mlp, hidden});
      down.push_back({prefix + "down", hidden, mlp});
    }
    ExpectMaps(*checkpoint, (*layer)->router, {{"layers.0.router", {0, 3}, hidden}}, false);
    ExpectMaps(*checkpoint, (*layer)->expert_gate_up.linear, gate_up, false);
    ExpectMaps(*checkpoint, (*layer)->expert_down.linear, down, false);
    EXPECT_EQ((*layer)->expert_gate_up.rows_per_expert, 2 * mlp.size());
    EXPECT_EQ((*layer)->expert_down.rows_per_expert, 256);
    EXPECT_TRUE((*layer)->gate_up.parts.empty());
  }
}

TEST_F(CudaWeightsTest, AddsTheOffsetToNorms) {
  checkpoint::ModelMetadata metadata = Metadata();
  metadata.norm_offset = 1.0f;
  metadata.qk_norm = metadata.post_norms = true;
  const auto checkpoint = testing::MakeRandomCheckpoint(metadata, DType::kBF16, 3);
  const ModelPlan plan = PlanOf(metadata);

  const auto layer =
      LoadCudaLayer(*checkpoint, plan, ShardOf(plan, 1, 0), 0, uploader(ElementType::kBF16));

  ASSERT_TRUE(layer.ok()) << layer.status().ToString();
  const auto expect_norm = [&](const std::string& name, const gpu::DeviceBuffer& norm) {
    auto want = testing::ExactWeights(*checkpoint->Find("layers.0." + name + ".weight"));
    for (float& value : want) value += 1.0f;
    ASSERT_EQ(norm.bytes(), want.size() * sizeof(float)) << name;
    EXPECT_EQ(ToHost<float>(norm, want.size()), want) << name;
  };
  expect_norm("attention_norm", (*layer)->attention_norm);
  expect_norm("attention_post_norm", (*layer)->attention_post_norm);
  expect_norm("mlp_norm", (*layer)->mlp_norm);
  expect_norm("mlp_post_norm", (*layer)->mlp_post_norm);
  expect_norm("q_norm", (*layer)->q_norm);
  expect_norm("k_norm", (*layer)->k_norm);
}

TEST_F(CudaWeightsTest, EdgesHoldTheRanksVocabularyOnceWhereTied) {
  for (const bool tied : {false, true}) {
    checkpoint::ModelMetadata metadata = Metadata();
    metadata.tied_embeddings = tied;
    const auto checkpoint = testing::MakeRandomCheckpoint(metadata, DType::kQ8_0, 4);
    const ModelPlan plan = PlanOf(metadata);
    const Shard shard = ShardOf(plan, 2, 1);

    const auto edges = LoadCudaEdges(*checkpoint, plan, shard, uploader(ElementType::kF16));

    ASSERT_TRUE(edges.ok()) << edges.status().ToString();
    EXPECT_EQ((*edges)->embedding == (*edges)->head, tied);
    EXPECT_EQ((*edges)->vocab, shard.vocab);
    const auto exact =
        testing::ExactWeights(*checkpoint->Find(tied ? "token_embedding.weight" : "output.weight"));
    const auto got = ReadBack((*edges)->head->view());
    ASSERT_EQ(got.size(), static_cast<std::size_t>(shard.vocab.size()) * 256);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], testing::ToBits(ElementType::kF16, exact[shard.vocab.begin * 256 + i]));
    }
  }
}

TEST_F(CudaWeightsTest, NamesWhatIsMissingMisshapenOrCut) {
  const auto checkpoint = testing::MakeRandomCheckpoint(Metadata(), DType::kQ8_0, 5);
  checkpoint::ModelMetadata with_norm = Metadata(), wider = Metadata(), narrow = Metadata();
  with_norm.qk_norm = true;
  wider.intermediate_size = 544;
  narrow.num_heads = 16, narrow.head_dim = 16;  // a rank's heads are half a group
  const auto narrow_checkpoint = testing::MakeRandomCheckpoint(narrow, DType::kQ8_0, 5);
  const auto message = [&](const checkpoint::Checkpoint& model,
                           const checkpoint::ModelMetadata& metadata, int world_size) {
    const ModelPlan plan = PlanOf(metadata);
    const auto layer =
        LoadCudaLayer(model, plan, ShardOf(plan, world_size, 0), 0, uploader(ElementType::kBF16));
    EXPECT_EQ(layer.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(layer.status().message());
  };

  EXPECT_THAT(message(*checkpoint, with_norm, 1), ::testing::HasSubstr("layers.0.q_norm.weight"));
  EXPECT_THAT(message(*checkpoint, wider, 1), ::testing::HasSubstr("layers.0.gate.weight"));
  EXPECT_THAT(message(*narrow_checkpoint, narrow, 16), ::testing::HasSubstr("layers.0.o.weight"));
}

}  // namespace
}  // namespace baton::engine::cuda
