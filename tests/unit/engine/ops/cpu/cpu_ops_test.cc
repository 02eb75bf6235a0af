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
    x = *ops->NewMatrix(num_rows, plan.hidden_size);
    q = *ops->NewMatrix(num_rows, shape.num_heads * shape.head_dim);
    attention = *ops->NewMatrix(num_rows, shape.num_heads * shape.head_dim);
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

// Sets of features as families combine them.
enum class Family : std::uint8_t {
  kLlama,
  kBiased,   // every bias, interleaved rope
  kGemma,    // norms and their offset, soft caps, a window, scaled embeddings, GELU by tanh
  kMixtral,  // experts, with biases and GELU by erf besides
  kQwenMoe,  // experts whose weights are not normalized, head norms, a head size of its own
};

std::string FamilyName(Family family) {
  switch (family) {
    case Family::kLlama:
      return "Llama";
    case Family::kBiased:
      return "Biased";
    case Family::kGemma:
      return "Gemma";
    case Family::kMixtral:
      return "Mixtral";
    case Family::kQwenMoe:
      return "QwenMoe";
  }
  return "";
}

void SetHeads(int num_heads, int num_kv_heads, int head_dim, checkpoint::ModelMetadata& metadata) {
  metadata.num_heads = num_heads;
  metadata.num_kv_heads = num_kv_heads;
  metadata.head_dim = metadata.rope.dim = head_dim;
}

void SetExperts(int num_experts, int per_token, int size, checkpoint::ModelMetadata& metadata) {
  metadata.num_experts = num_experts;
  metadata.experts_per_token = per_token;
  metadata.expert_intermediate_size = size;
}

// Columns are whole blocks of every dtype.
checkpoint::ModelMetadata MetadataOf(Family family) {
  auto metadata = testing::TinyMetadata();
  metadata.hidden_size = 256;
  metadata.intermediate_size = 768;
  metadata.num_layers = 1;
  metadata.tied_embeddings = false;
  SetHeads(8, 2, 32, metadata);
  switch (family) {
    case Family::kLlama:
      break;
    case Family::kBiased:
      metadata.attention_bias = metadata.output_bias = metadata.mlp_bias = true;
      metadata.rope.interleaved = true;
      break;
    case Family::kGemma:
      SetHeads(32, 8, 24, metadata);
      metadata.norm_offset = 1.0f;
      metadata.embedding_scale = 16.0f;
      metadata.qk_norm = metadata.post_norms = true;
      metadata.activation = Activation::kGeluTanh;
      metadata.attention_scale = 0.3f;
      metadata.attention_softcap = 2.0f;
      metadata.logit_softcap = 1.5f;
      metadata.sliding_window = 4;
      metadata.windowed_layers = {true};
      break;
    case Family::kMixtral:
      SetExperts(4, 2, 256, metadata);
      metadata.mlp_bias = metadata.post_norms = true;
      metadata.activation = Activation::kGelu;
      break;
    case Family::kQwenMoe:
      SetHeads(32, 4, 40, metadata);
      SetExperts(21, 3, 256, metadata);
      metadata.qk_norm = true;
      metadata.normalize_expert_weights = false;
      break;
  }
  return metadata;
}

// A batch of a chunk of 9 tokens from position 0, a decode row at 5 and a chunk across a block
// at 2.
class Batch {
 public:
  static constexpr int kRows = 17;
  explicit Batch(const ModelPlan& plan) {
    std::mt19937 random(2);
    for (auto& token : tokens_) token = static_cast<std::int32_t>(random() % plan.vocab_size);
    for (const BatchSequence& sequence : sequences_) {
      for (int i = 0; i < sequence.num_rows; ++i) {
        positions_.push_back(sequence.start_position + i);
      }
    }
    batch_ = {.tokens = tokens_,
              .positions = positions_,
              .sequences = sequences_,
              .angles = angles_.Compute(plan.ropes, positions_, positions_)};
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  const RaggedBatch& batch() const { return batch_; }

 private:
  const std::vector<BlockId> tables_[3] = {{3, 1, 7}, {10, 0}, {20, 21, 5}};
  const std::vector<BatchSequence> sequences_ = {
      {0, 9, 0, tables_[0]}, {9, 1, 5, tables_[1]}, {10, 7, 2, tables_[2]}};
  std::vector<std::int32_t> tokens_ = std::vector<std::int32_t>(kRows);
  std::vector<std::int32_t> positions_;
  RopeAngleBuffer angles_;
  RaggedBatch batch_;
};

// Runs every operation of layer 0 on both backends. Both get the same input to each operation, so
// that errors do not add up.
void ExpectOperationsOfTheReference(const checkpoint::ModelMetadata& metadata, DType dtype,
                                    ComputeMode compute, bool act_order = false) {
  const auto checkpoint = testing::MakeRandomCheckpoint(metadata, dtype, 5, act_order);
  const ModelPlan plan = *MakeModelPlan(checkpoint->metadata(), 64);
  const KvLayout layout{.num_layers = 1,
                        .num_kv_heads = metadata.num_kv_heads,
                        .head_dim = metadata.head_dim,
                        .block_size = 4};
  const Batch ragged(plan);
  const RaggedBatch& batch = ragged.batch();
  Side reference(MakeReferenceOps(), *checkpoint, plan, layout, Batch::kRows);
  Side cpu(MakeCpuOps({.compute = compute, .num_threads = 3}), *checkpoint, plan, layout,
           Batch::kRows);
  // Activations are off by up to 2^-15 of the largest of their 32, in the MLP at two places; float
  // by its roundings. Plain 8-bit activations would need 128 times as much as the former.
  const double tolerance = compute == ComputeMode::kFast ? 3e-4 : 5e-6;
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

struct Case {
  Family family;
  DType dtype;
  ComputeMode compute;
  bool act_order = false;
};

class CpuOpsTest : public ::testing::TestWithParam<Case> {};

TEST_P(CpuOpsTest, EveryOperationIsThatOfTheReference) {
  ExpectOperationsOfTheReference(MetadataOf(GetParam().family), GetParam().dtype,
                                 GetParam().compute, GetParam().act_order);
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const ComputeMode compute : {ComputeMode::kFast, ComputeMode::kF32}) {
    for (const DType dtype : testing::AllDTypes()) {
      cases.push_back({cases.size() % 2 == 0 ? Family::kLlama : Family::kBiased, dtype, compute});
    }
    for (const Family family : {Family::kGemma, Family::kMixtral, Family::kQwenMoe}) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ6_K}) {
        cases.push_back({family, dtype, compute});
      }
    }
    for (const Family family : {Family::kBiased, Family::kMixtral}) {
      cases.push_back({family, DType::kInt4, compute, /*act_order=*/true});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, CpuOpsTest, ::testing::ValuesIn(AllCases()), [](const auto& tested) {
  return absl::StrCat(FamilyName(tested.param.family), "_",
                      std::string(checkpoint::DTypeName(tested.param.dtype)),
                      tested.param.compute == ComputeMode::kFast ? "_Fast" : "_F32",
                      tested.param.act_order ? "_ActOrder" : "");
});

TEST(CpuOpsShapesTest, HeadsOfEverySizeAndSharing) {
  for (const int head_dim : {8, 24, 40, 64, 80, 96, 128, 192, 256}) {
    for (const int num_kv_heads : {1, 2, 4}) {
      SCOPED_TRACE(absl::StrCat("head_dim ", head_dim, ", KV heads ", num_kv_heads));
      auto metadata = MetadataOf(Family::kGemma);
      metadata.hidden_size = 72;
      SetHeads(4, num_kv_heads, head_dim, metadata);
      if (head_dim % 16 == 8) metadata.rope.dim = head_dim - 2;
      ExpectOperationsOfTheReference(metadata, DType::kF32, ComputeMode::kFast);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CpuOpsShapesTest, MlpsOfAnySize) {
  for (const int size : {1, 8, 15, 17, 31, 40, 100}) {
    for (const int num_experts : {0, 3}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        SCOPED_TRACE(absl::StrCat("size ", size, ", experts ", num_experts));
        auto metadata = MetadataOf(Family::kBiased);
        metadata.hidden_size = 40;
        metadata.intermediate_size = size;
        SetExperts(num_experts, std::min(num_experts, 2), size, metadata);
        ExpectOperationsOfTheReference(metadata, dtype, ComputeMode::kFast);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Property: of more rows than a mixture takes at once, each has the bits that it has alone.
TEST(CpuOpsShapesTest, ExpertsOfManyRowsAreThoseOfEachRowAlone) {
  auto metadata = MetadataOf(Family::kMixtral);
  for (const bool post_norms : {false, true}) {
    metadata.post_norms = post_norms;
    const auto checkpoint = testing::MakeRandomCheckpoint(metadata, DType::kQ4_1, 5);
    const ModelPlan plan = *MakeModelPlan(checkpoint->metadata(), 64);
    const auto ops = MakeCpuOps({.num_threads = 2});
    const auto layer = *ops->LoadLayer(*checkpoint, plan, 0);
    constexpr int kRows = 1100;
    const int columns = plan.hidden_size;
    const auto together = *ops->NewMatrix(kRows, columns);
    const auto alone = *ops->NewMatrix(1, columns);
    std::mt19937 random(3);
    std::normal_distribution<float> value;
    for (int i = 0; i < kRows * columns; ++i) together->matrix().f32()[i] = value(random);
    const std::vector<float> before(together->matrix().f32(),
                                    together->matrix().f32() + kRows * columns);

    ASSERT_TRUE(ops->Mlp(plan, 0, *layer, together->matrix()).ok());

    for (int row = 0; row < kRows; row += 73) {
      std::copy_n(before.data() + row * columns, columns, alone->matrix().f32());
      ASSERT_TRUE(ops->Mlp(plan, 0, *layer, alone->matrix()).ok());
      EXPECT_TRUE(std::equal(alone->matrix().f32(), alone->matrix().f32() + columns,
                             together->matrix().f32() + row * columns))
          << "row " << row;
    }
  }
}

TEST(CpuOpsErrorsTest, RefusesShapesThatDisagree) {
  const auto metadata = testing::TinyMetadata();
  const auto checkpoint = testing::MakeRandomCheckpoint(metadata, DType::kF32, 5);
  ModelPlan plan = *MakeModelPlan(checkpoint->metadata(), 64);
  const auto ops = MakeCpuOps({});
  const auto layer = ops->LoadLayer(*checkpoint, plan, 0);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const auto narrow = *ops->NewMatrix(2, metadata.hidden_size - 1);

  EXPECT_EQ(ops->Mlp(plan, 0, **layer, narrow->matrix()).code(),
            absl::StatusCode::kInvalidArgument);
  plan.layers[0].intermediate_size += 1;
  EXPECT_EQ(ops->LoadLayer(*checkpoint, plan, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::engine
