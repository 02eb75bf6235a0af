// The CPU backend against the reference, operation by operation inside one model, for every dtype.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/kv/kv_pool.h"
#include "engine/model/model_plan.h"
#include "engine/ops/ops.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/random_matrix.h"

namespace baton::engine {
namespace {

using checkpoint::DType;

// One backend with its weights, its KV pool and the residual stream of a ragged batch.
struct Side {
  Side(std::unique_ptr<Ops> backend, const checkpoint::Checkpoint& checkpoint,
       const ModelPlan& model, const KvLayout& layout, int num_rows)
      : ops(std::move(backend)), plan(model), kv(*KvPool::Create(layout, 32)) {
    layer = *ops->LoadLayer(checkpoint, plan, 0);
    edges = *ops->LoadEdges(checkpoint, plan);
    const LayerPlan& shape = plan.layers[0];
    x = ops->NewMatrix(num_rows, plan.hidden_size);
    q = ops->NewMatrix(num_rows, shape.num_heads * shape.head_dim);
    attention = ops->NewMatrix(num_rows, shape.num_heads * shape.head_dim);
  }
  std::unique_ptr<Ops> ops;
  const ModelPlan& plan;
  std::unique_ptr<KvPool> kv;
  std::unique_ptr<LayerWeights> layer;
  std::unique_ptr<EdgeWeights> edges;
  std::unique_ptr<MatrixBuffer> x, q, attention;
};

void CopyMatrix(const Matrix& from, const Matrix& to) {
  std::copy_n(from.f32(), static_cast<std::size_t>(from.rows) * from.columns, to.f32());
}

// Every row of `actual` is within `tolerance` of the largest magnitude of its row in `expected`.
void ExpectRowsNear(const float* expected, const float* actual, int rows, int columns,
                    double tolerance) {
  for (int row = 0; row < rows; ++row) {
    double largest = 0;
    double error = 0;
    for (int i = row * columns; i < (row + 1) * columns; ++i) {
      largest = std::max<double>(largest, std::abs(expected[i]));
      error = std::max<double>(error, std::abs(expected[i] - actual[i]));
    }
    ASSERT_TRUE(std::isfinite(error));
    ASSERT_LE(error, tolerance * largest) << "row " << row << " of " << rows;
  }
}
void ExpectNear(const Matrix& expected, const Matrix& actual, double tolerance) {
  ExpectRowsNear(expected.f32(), actual.f32(), expected.rows, expected.columns, tolerance);
}

struct Case {
  DType dtype;
  ComputeMode compute;
  bool bias;
  bool interleaved;
  bool act_order = false;
};

class CpuOpsTest : public ::testing::TestWithParam<Case> {
 protected:
  static checkpoint::ModelMetadata Metadata() {
    auto metadata = testing::TinyMetadata();
    metadata.hidden_size = 256;
    metadata.intermediate_size = 768;
    metadata.num_heads = 8;
    metadata.num_kv_heads = 2;
    metadata.head_dim = 32;
    metadata.num_layers = 1;
    metadata.tied_embeddings = false;
    metadata.attention_bias = metadata.output_bias = GetParam().bias;
    metadata.rope.dim = 32;
    metadata.rope.interleaved = GetParam().interleaved;
    return metadata;
  }
};

// Both backends get the same input to each operation, so that errors do not add up.
TEST_P(CpuOpsTest, EveryOperationIsThatOfTheReference) {
  const auto metadata = Metadata();
  const auto checkpoint =
      testing::MakeRandomCheckpoint(metadata, GetParam().dtype, 5, GetParam().act_order);
  const ModelPlan plan = *MakeModelPlan(checkpoint->metadata(), 64);
  const KvLayout layout{.num_layers = 1, .num_kv_heads = 2, .head_dim = 32, .block_size = 4};
  // A chunk of 9 tokens from position 0, one decode row at 5 and a chunk across a block at 2.
  std::vector<BlockId> tables[] = {{3, 1, 7}, {10, 0}, {20, 21, 5}};
  const std::vector<BatchSequence> sequences = {
      {0, 9, 0, tables[0]}, {9, 1, 5, tables[1]}, {10, 7, 2, tables[2]}};
  std::vector<std::int32_t> tokens(17), positions;
  std::mt19937 random(2);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % metadata.vocab_size);
  for (const BatchSequence& s : sequences) {
    for (int i = 0; i < s.num_rows; ++i) positions.push_back(s.start_position + i);
  }
  RopeAngleBuffer angles;
  const RaggedBatch batch{.tokens = tokens,
                          .positions = positions,
                          .sequences = sequences,
                          .angles = angles.Compute(plan.ropes, positions, positions)};
  Side reference(MakeReferenceOps(), *checkpoint, plan, layout, 17);
  Side cpu(MakeCpuOps({.compute = GetParam().compute, .num_threads = 3}), *checkpoint, plan, layout,
           17);
  const bool fast = GetParam().compute == ComputeMode::kFast;
  // Activations are off by up to 2^-15 of the largest of their 32, in the MLP at two places; float
  // by its roundings. Plain 8-bit activations would need 128 times as much as the former.
  const double tolerance = fast ? 3e-4 : 5e-6;
  const Matrix x = reference.x->matrix();

  ASSERT_TRUE(reference.ops->Embed(plan, *reference.edges, batch, x).ok());
  ASSERT_TRUE(cpu.ops->Embed(plan, *cpu.edges, batch, cpu.x->matrix()).ok());
  ExpectNear(x, cpu.x->matrix(), 1e-7);

  for (Side* side : {&reference, &cpu}) {
    ASSERT_TRUE(side->ops
                    ->QkvRopeAppend(plan, 0, *side->layer, batch, side->x->matrix(), *side->kv,
                                    side->q->matrix())
                    .ok());
  }
  ExpectNear(reference.q->matrix(), cpu.q->matrix(), tolerance);

  // The same queries and KV bytes for both.
  CopyMatrix(reference.q->matrix(), cpu.q->matrix());
  for (BlockId block = 0; block < 32; ++block) {
    std::copy_n(reference.kv->Block(0, block).data(), layout.block_bytes(),
                cpu.kv->Block(0, block).data());
  }
  for (Side* side : {&reference, &cpu}) {
    ASSERT_TRUE(side->ops
                    ->PagedAttention(plan, 0, batch, side->q->matrix(), *side->kv,
                                     side->attention->matrix())
                    .ok());
  }
  ExpectNear(reference.attention->matrix(), cpu.attention->matrix(), 5e-6);

  CopyMatrix(reference.attention->matrix(), cpu.attention->matrix());
  for (Side* side : {&reference, &cpu}) {
    ASSERT_TRUE(
        side->ops
            ->AttentionOutput(plan, 0, *side->layer, side->attention->matrix(), side->x->matrix())
            .ok());
  }
  ExpectNear(x, cpu.x->matrix(), tolerance);

  CopyMatrix(x, cpu.x->matrix());
  for (Side* side : {&reference, &cpu}) {
    ASSERT_TRUE(side->ops->Mlp(plan, 0, *side->layer, side->x->matrix()).ok());
  }
  ExpectNear(x, cpu.x->matrix(), tolerance);

  CopyMatrix(x, cpu.x->matrix());
  const std::vector<std::int32_t> rows = {8, 9, 16, 0};
  std::vector<float> expected(rows.size() * metadata.vocab_size);
  std::vector<float> actual(expected.size());
  ASSERT_TRUE(reference.ops->Logits(plan, *reference.edges, x, rows, expected.data()).ok());
  ASSERT_TRUE(cpu.ops->Logits(plan, *cpu.edges, cpu.x->matrix(), rows, actual.data()).ok());
  ExpectRowsNear(expected.data(), actual.data(), 4, metadata.vocab_size, tolerance);
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const DType dtype : testing::AllDTypes()) {
    for (const ComputeMode compute : {ComputeMode::kFast, ComputeMode::kF32}) {
      const bool odd = cases.size() % 4 < 2;
      cases.push_back({dtype, compute, odd, !odd});
    }
  }
  for (const ComputeMode compute : {ComputeMode::kFast, ComputeMode::kF32}) {
    cases.push_back({DType::kInt4, compute, true, false, /*act_order=*/true});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, CpuOpsTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& tested) {
                           return absl::StrCat(
                               std::string(checkpoint::DTypeName(tested.param.dtype)),
                               tested.param.compute == ComputeMode::kFast ? "Fast" : "F32",
                               tested.param.act_order ? "ActOrder" : "");
                         });

TEST(CpuOpsErrorsTest, RefusesShapesThatDisagree) {
  const auto metadata = testing::TinyMetadata();
  const auto checkpoint = testing::MakeRandomCheckpoint(metadata, DType::kF32, 5);
  ModelPlan plan = *MakeModelPlan(checkpoint->metadata(), 64);
  const auto ops = MakeCpuOps({});
  const auto layer = ops->LoadLayer(*checkpoint, plan, 0);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const auto narrow = ops->NewMatrix(2, metadata.hidden_size - 1);

  EXPECT_EQ(ops->Mlp(plan, 0, **layer, narrow->matrix()).code(),
            absl::StatusCode::kInvalidArgument);
  plan.layers[0].intermediate_size += 1;
  EXPECT_EQ(ops->LoadLayer(*checkpoint, plan, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::engine
