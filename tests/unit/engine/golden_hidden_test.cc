// Every operation against the states of a float32 run of SmolLM2, layer by layer.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/model/model_plan.h"
#include "tests/support/engine_setups.h"
#include "tests/support/golden_engine.h"
#include "tests/support/test_paths.h"

namespace baton::engine {
namespace {

using testing::EngineSetup;

// float64 differs from the golden values by 7e-6 of a row's largest magnitude, so that this bound
// (tests/golden/smollm2/README.md) leaves an f32 engine its rounding and little else.
constexpr double kRelativeTolerance = 5e-5;

// hidden.safetensors: an 8-byte header length, a JSON header, then the tensors.
class HiddenStates {
 public:
  static std::unique_ptr<HiddenStates> Load(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::uint64_t header_bytes = 0;
    if (!file.read(reinterpret_cast<char*>(&header_bytes), 8)) return nullptr;
    std::string header(header_bytes, '\0');
    if (!file.read(header.data(), static_cast<std::streamsize>(header_bytes))) return nullptr;
    std::unique_ptr<HiddenStates> states(new HiddenStates());
    states->header_ = nlohmann::json::parse(header);
    states->bytes_.assign(std::istreambuf_iterator<char>(file), {});
    return states;
  }

  template <class T = float>
  std::vector<T> Get(const std::string& name) const {
    const auto& offsets = header_.at(name).at("data_offsets");
    const std::size_t begin = offsets[0], end = offsets[1];
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + begin, end - begin);
    return values;
  }

 private:
  nlohmann::json header_;
  std::string bytes_;
};

// Compares [rows, columns] relative to the largest magnitude of each golden row.
void ExpectNear(const float* actual, const std::vector<float>& golden, int columns,
                const std::string& what) {
  const int rows = static_cast<int>(golden.size()) / columns;
  for (int row = 0; row < rows; ++row) {
    double largest = 0, worst = 0;
    for (int i = row * columns; i < (row + 1) * columns; ++i) {
      largest = std::max<double>(largest, std::abs(golden[i]));
      worst = std::max<double>(worst, std::abs(static_cast<double>(actual[i]) - golden[i]));
    }
    EXPECT_LE(worst, kRelativeTolerance * largest)
        << what << ", row " << row << ": off by " << worst / largest << " of its largest";
  }
}

// The golden file pairs (i, i + dim/2), a GGUF (2i, 2i+1): the same values in another order.
std::vector<float> InFileOrder(const std::vector<float>& hugging_face, int head_dim,
                               bool interleaved) {
  if (!interleaved) return hugging_face;
  std::vector<float> reordered(hugging_face.size());
  for (std::size_t begin = 0; begin < reordered.size(); begin += head_dim) {
    for (int i = 0; i < head_dim / 2; ++i) {
      reordered[begin + 2 * i] = hugging_face[begin + i];
      reordered[begin + 2 * i + 1] = hugging_face[begin + i + head_dim / 2];
    }
  }
  return reordered;
}

class GoldenHiddenTest : public ::testing::TestWithParam<EngineSetup> {
 protected:
  static constexpr int kBlockSize = 4;

  void SetUp() override {
    const std::string path = testing::SmolLm2Path();
    if (path.empty()) GTEST_SKIP() << "SmolLM2 is not here; scripts/ has the download";
    golden_ = HiddenStates::Load(testing::GoldenDir() + "/smollm2/hidden.safetensors");
    ASSERT_NE(golden_, nullptr);
    auto checkpoint = checkpoint::Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
    auto plan = MakeModelPlan(checkpoint_->metadata(), 0);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    auto ops = testing::MakeOps(GetParam(), plan_);
    ASSERT_TRUE(ops.ok()) << ops.status();
    ops_ = *std::move(ops);
    tokens_ = golden_->Get<std::int32_t>("input_ids");
    positions_.resize(tokens_.size());
    std::iota(positions_.begin(), positions_.end(), 0);
    // Blocks in falling order, so that order in the pool is not order in the sequence.
    const int num_blocks = static_cast<int>(tokens_.size()) / kBlockSize + 1;
    for (int block = num_blocks; block-- > 0;) blocks_.push_back(block);
    const LayerPlan& layer = plan_.layers[0];
    auto kv = KvPool::Create({.num_layers = static_cast<int>(plan_.layers.size()),
                              .num_kv_heads = layer.num_kv_heads,
                              .head_dim = layer.head_dim,
                              .block_size = kBlockSize,
                              .dtype = KvDType::kF32},
                             num_blocks);
    ASSERT_TRUE(kv.ok()) << kv.status();
    kv_ = *std::move(kv);
    sequence_ = {.num_rows = static_cast<int>(tokens_.size()), .block_table = blocks_};
    batch_ = {.tokens = tokens_,
              .positions = positions_,
              .sequences = {&sequence_, 1},
              .angles = angles_.Compute(plan_.ropes, positions_, positions_)};
  }

  // K or V of the tokens in layer 0, as [tokens, num_kv_heads * head_dim].
  std::vector<float> ReadPool(bool value) const {
    const KvLayout& layout = kv_->layout();
    std::vector<float> rows;
    for (int t = 0; t < static_cast<int>(tokens_.size()); ++t) {
      const std::byte* block = kv_->Block(0, blocks_[t / kBlockSize]).data();
      const auto* base =
          reinterpret_cast<const float*>(block + (value ? layout.half_block_bytes() : 0));
      for (int head = 0; head < layout.num_kv_heads; ++head) {
        const float* slot = base + (head * kBlockSize + t % kBlockSize) * layout.head_dim;
        rows.insert(rows.end(), slot, slot + layout.head_dim);
      }
    }
    return rows;
  }

  std::unique_ptr<HiddenStates> golden_;
  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
  ModelPlan plan_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<KvPool> kv_;
  std::vector<std::int32_t> tokens_, positions_;
  std::vector<BlockId> blocks_;
  BatchSequence sequence_;
  RopeAngleBuffer angles_;
  RaggedBatch batch_;
};

TEST_P(GoldenHiddenTest, EveryOperationOfTheFirstLayerAgrees) {
  const LayerPlan& layer = plan_.layers[0];
  const int rows = batch_.num_rows(), hidden = plan_.hidden_size;
  const int q_columns = layer.num_heads * layer.head_dim;
  const int kv_columns = layer.num_kv_heads * layer.head_dim;
  const bool interleaved = plan_.ropes[0].interleaved;
  const auto edges = ops_->LoadEdges(*checkpoint_, plan_);
  const auto weights = ops_->LoadLayer(*checkpoint_, plan_, 0);
  ASSERT_TRUE(edges.ok()) << edges.status();
  ASSERT_TRUE(weights.ok()) << weights.status();
  const auto x = *ops_->NewMatrix(rows, hidden), q = *ops_->NewMatrix(rows, q_columns),
             heads = *ops_->NewMatrix(rows, q_columns), added = *ops_->NewMatrix(rows, hidden);

  ASSERT_TRUE(ops_->Embed(plan_, **edges, batch_, x->matrix()).ok());
  ExpectNear(x->matrix().f32(), golden_->Get("embedding"), hidden, "embedding");

  ASSERT_TRUE(
      ops_->QkvRopeAppend(plan_, 0, **weights, batch_, x->matrix(), *kv_, q->matrix()).ok());
  ExpectNear(q->matrix().f32(),
             InFileOrder(golden_->Get("layer.00.q_rope"), layer.head_dim, interleaved), q_columns,
             "q_rope");
  ExpectNear(ReadPool(false).data(),
             InFileOrder(golden_->Get("layer.00.k_rope"), layer.head_dim, interleaved), kv_columns,
             "k_rope");
  ExpectNear(ReadPool(true).data(), golden_->Get("layer.00.v"), kv_columns, "v");

  ASSERT_TRUE(ops_->PagedAttention(plan_, 0, batch_, q->matrix(), *kv_, heads->matrix()).ok());
  ExpectNear(heads->matrix().f32(), golden_->Get("layer.00.attn_heads"), q_columns, "attn_heads");

  std::memset(added->matrix().data, 0, sizeof(float) * rows * hidden);
  ASSERT_TRUE(ops_->AttentionOutput(plan_, 0, **weights, heads->matrix(), added->matrix()).ok());
  ExpectNear(added->matrix().f32(), golden_->Get("layer.00.attn_output"), hidden, "attn_output");

  for (int i = 0; i < rows * hidden; ++i) x->matrix().f32()[i] += added->matrix().f32()[i];
  ASSERT_TRUE(ops_->Mlp(plan_, 0, **weights, x->matrix()).ok());
  ExpectNear(x->matrix().f32(), golden_->Get("layer.00.output"), hidden, "layer 00 output");
}

TEST_P(GoldenHiddenTest, TheResidualStreamAgreesAfterEveryLayerAndSoDoTheLastLogits) {
  const int rows = batch_.num_rows(), hidden = plan_.hidden_size;
  const int q_columns = plan_.layers[0].num_heads * plan_.layers[0].head_dim;
  const auto edges = ops_->LoadEdges(*checkpoint_, plan_);
  ASSERT_TRUE(edges.ok()) << edges.status();
  const auto x = *ops_->NewMatrix(rows, hidden), q = *ops_->NewMatrix(rows, q_columns),
             heads = *ops_->NewMatrix(rows, q_columns);

  ASSERT_TRUE(ops_->Embed(plan_, **edges, batch_, x->matrix()).ok());
  for (int i = 0; i < static_cast<int>(plan_.layers.size()); ++i) {
    const auto weights = ops_->LoadLayer(*checkpoint_, plan_, i);
    ASSERT_TRUE(weights.ok()) << weights.status();
    ASSERT_TRUE(
        ops_->QkvRopeAppend(plan_, i, **weights, batch_, x->matrix(), *kv_, q->matrix()).ok());
    ASSERT_TRUE(ops_->PagedAttention(plan_, i, batch_, q->matrix(), *kv_, heads->matrix()).ok());
    ASSERT_TRUE(ops_->AttentionOutput(plan_, i, **weights, heads->matrix(), x->matrix()).ok());
    ASSERT_TRUE(ops_->Mlp(plan_, i, **weights, x->matrix()).ok());
    ExpectNear(x->matrix().f32(), golden_->Get(absl::StrFormat("layer.%02d.output", i)), hidden,
               absl::StrCat("layer ", i, " output"));
  }
  std::vector<float> logits(plan_.vocab_size);
  const std::vector<std::int32_t> last = {rows - 1};
  ASSERT_TRUE(ops_->Logits(plan_, **edges, x->matrix(), last, logits.data()).ok());
  ExpectNear(logits.data(), golden_->Get("last_logits"), plan_.vocab_size, "last_logits");
}

INSTANTIATE_TEST_SUITE_P(F32Backends, GoldenHiddenTest, ::testing::ValuesIn(testing::F32Setups()),
                         [](const auto& tested) { return testing::SetupName(tested.param); });

}  // namespace
}  // namespace baton::engine
