// A model computed by several ranks has the bits of one computed by one: logits and KV.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "engine/model/model_plan.h"
#include "engine/parallel/rank_group.h"
#include "engine/parallel/shard.h"
#include "tests/support/engine_setups.h"
#include "tests/support/golden_arch.h"
#include "tests/support/golden_engine.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/rank_group_engine.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_paths.h"

namespace baton::engine {
namespace {

using checkpoint::Checkpoint;
using checkpoint::DType;
using testing::EngineSetup;

constexpr int kBlockSize = 4, kNumBlocks = 64, kMaxRows = 48;

using StepFunction = std::function<absl::Status(std::span<const SequenceStep>, const LogitsHook&)>;

// Some sequences of random tokens, computed in chunks of random length that share steps. The same
// seed gives the same steps. Returns the logits of every row.
std::vector<std::vector<float>> RunSteps(const StepFunction& step, int vocab_size, unsigned seed) {
  std::mt19937 random(seed);
  struct Sequence {
    std::vector<std::int32_t> tokens;
    std::vector<BlockId> blocks;
    int num_computed = 0;
  };
  std::vector<Sequence> sequences(3);
  BlockId next_block = kNumBlocks;
  for (Sequence& sequence : sequences) {
    sequence.tokens.resize(3 + random() % 40);
    for (auto& token : sequence.tokens) token = static_cast<std::int32_t>(random() % vocab_size);
    for (std::size_t i = 0; i < sequence.tokens.size(); i += kBlockSize) {
      sequence.blocks.push_back(--next_block);
    }
  }
  std::vector<std::vector<float>> logits;
  for (;;) {
    std::vector<SequenceStep> steps;
    for (Sequence& sequence : sequences) {
      const int left = static_cast<int>(sequence.tokens.size()) - sequence.num_computed;
      const int count = std::min<int>(left, static_cast<int>(random() % 16));
      if (count == 0) continue;
      steps.push_back({.tokens = std::span(sequence.tokens).subspan(sequence.num_computed, count),
                       .start_position = sequence.num_computed,
                       .block_table = sequence.blocks,
                       .logits = random() % 3 == 0 ? LogitRows::kLast : LogitRows::kAll,
                       .prompt_length = static_cast<int>(sequence.tokens.size())});
      sequence.num_computed += count;
    }
    if (!steps.empty()) {
      const absl::Status status = step(steps, [&](int, int, std::span<float> row) {
        logits.emplace_back(row.begin(), row.end());
      });
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) return {};
    }
    if (std::all_of(sequences.begin(), sequences.end(), [](const Sequence& sequence) {
          return sequence.num_computed == static_cast<int>(sequence.tokens.size());
        })) {
      return logits;
    }
  }
}

// Every KV head that a rank holds is the whole model's, byte for byte.
void ExpectSameKv(const ModelPlan& plan, const KvPool& whole, const RankGroup& group) {
  const KvLayout& layout = whole.layout();
  const std::size_t head_bytes = layout.element_bytes() * layout.block_size * layout.head_dim;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    const auto shard = MakeShard(plan, group.world_size(), rank);
    ASSERT_TRUE(shard.ok()) << shard.status();
    const KvPool& own = group.kv(rank);
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      const IndexRange heads = shard->layers[layer].kv_heads;
      ASSERT_EQ(own.layout().num_kv_heads, heads.size());
      for (int block = 0; block < whole.num_blocks(); ++block) {
        for (int half = 0; half < 2; ++half) {
          const std::byte* expected = whole.Block(layer, block).data() +
                                      half * layout.half_block_bytes() + heads.begin * head_bytes;
          const std::byte* actual =
              own.Block(layer, block).data() + half * own.layout().half_block_bytes();
          ASSERT_EQ(std::memcmp(expected, actual, heads.size() * head_bytes), 0)
              << "rank " << rank << ", layer " << layer << ", block " << block;
        }
      }
    }
  }
}

void ExpectSameBits(const std::shared_ptr<const Checkpoint>& checkpoint, EngineSetup setup,
                    std::vector<int> world_sizes) {
  setup.block_size = kBlockSize;
  setup.kv_tokens = kBlockSize * kNumBlocks;
  setup.max_rows = kMaxRows;
  // Two threads a rank where weights and activations are quantized; alone elsewhere, since more
  // threads than cores take long to meet.
  if (setup.compute == ComputeMode::kF32) setup.num_threads = 1;
  const auto plan = MakeModelPlan(checkpoint->metadata(), 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  auto one = testing::GoldenEngine::Create(checkpoint, setup);
  ASSERT_TRUE(one.ok()) << one.status();
  const auto expected = RunSteps(
      [&](std::span<const SequenceStep> steps, const LogitsHook& on_logits) {
        return (*one)->runner().Step(steps, (*one)->kv(), {.on_logits = on_logits});
      },
      plan->vocab_size, 7);
  ASSERT_FALSE(expected.empty());

  for (const int world_size : world_sizes) {
    SCOPED_TRACE(absl::StrCat(world_size, " ranks"));
    auto group = testing::MakeCpuRankGroup(checkpoint, setup, world_size);
    ASSERT_TRUE(group.ok()) << group.status();
    const auto actual = RunSteps(
        [&](std::span<const SequenceStep> steps, const LogitsHook& on_logits) {
          return (*group)->Step(steps, {.on_logits = on_logits});
        },
        plan->vocab_size, 7);

    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t row = 0; row < expected.size(); ++row) {
      ASSERT_EQ(std::memcmp(actual[row].data(), expected[row].data(),
                            expected[row].size() * sizeof(float)),
                0)
          << "row " << row;
    }
    ExpectSameKv(*plan, (*one)->kv(), **group);
  }
}

std::vector<EngineSetup> CpuSetups() {
  std::vector<EngineSetup> setups;
  for (const EngineSetup& setup : testing::AllSetups()) {
    if (setup.backend == testing::Backend::kCpu) setups.push_back(setup);
  }
  return setups;
}

class TensorParallelTest : public ::testing::TestWithParam<EngineSetup> {};

INSTANTIATE_TEST_SUITE_P(AllSetups, TensorParallelTest, ::testing::ValuesIn(CpuSetups()),
                         [](const auto& tested) { return testing::SetupName(tested.param); });

// Every family, head shape and MLP of tests/golden/arch; two KV heads, so that four ranks repeat
// them.
TEST_P(TensorParallelTest, ArchitecturesHaveTheBitsOfOneRank) {
  const auto models = testing::FindArchModels(testing::GoldenDir() + "/arch");
  ASSERT_TRUE(models.ok()) << models.status();
  for (const testing::ArchModel& model : *models) {
    SCOPED_TRACE(model.name);
    const testing::TempDirectory temp;
    auto checkpoint = Checkpoint::Open(testing::LinkArchModel(model, temp));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    ExpectSameBits(*std::move(checkpoint), GetParam(), {2, 3, 4});
  }
}

// Quantized weights of every kind of group, uneven heads (9 query, 3 KV), columns in an order of
// their own, and intermediate columns that leave no rank a whole group of its own.
TEST_P(TensorParallelTest, QuantizedModelsHaveTheBitsOfOneRank) {
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kQ6_K, DType::kQ2_K, DType::kIQ4_XS,
                            DType::kMXFP4, DType::kInt4, DType::kBF16}) {
    for (const bool experts : {false, true}) {
      if (experts && dtype != DType::kQ4_1 && dtype != DType::kInt4) continue;
      SCOPED_TRACE(absl::StrCat(std::string(DTypeName(dtype)), experts ? " experts" : ""));
      auto metadata = testing::TinyMetadata();
      metadata.hidden_size = 256;
      metadata.intermediate_size = 512;
      metadata.num_heads = 9;
      metadata.num_kv_heads = 3;
      metadata.head_dim = metadata.rope.dim = 256;  // columns of Wo: whole blocks of every type
      metadata.tied_embeddings = false;
      metadata.attention_bias = metadata.output_bias = metadata.mlp_bias = true;
      if (experts) {
        metadata.num_experts = 6;
        metadata.experts_per_token = 2;
        metadata.expert_intermediate_size = 64;  // two groups
      }
      ExpectSameBits(
          testing::MakeRandomCheckpoint(metadata, dtype, 5, /*act_order=*/dtype == DType::kInt4),
          GetParam(), {2, 3, 4});
    }
  }
}

// More rows of a mixture than are computed at once.
TEST(TensorParallelMixtureTest, RowsInSeveralPartsHaveTheBitsOfOneRank) {
  auto metadata = testing::TinyMetadata();
  metadata.num_experts = 4;
  metadata.experts_per_token = 2;
  metadata.expert_intermediate_size = 64;
  metadata.max_context = 1200;
  const auto checkpoint = testing::MakeRandomCheckpoint(metadata, DType::kQ4_1, 3);
  EngineSetup setup{.backend = testing::Backend::kCpu,
                    .compute = ComputeMode::kFast,
                    .max_rows = 1100,
                    .kv_tokens = 1200};
  std::vector<std::int32_t> tokens(1100);
  std::mt19937 random(1);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % metadata.vocab_size);
  std::vector<BlockId> blocks(75);
  for (int i = 0; i < 75; ++i) blocks[i] = i;
  const SequenceStep step{.tokens = tokens, .block_table = blocks, .logits = LogitRows::kLast};
  std::vector<float> expected, actual;

  auto one = testing::GoldenEngine::Create(checkpoint, setup);
  ASSERT_TRUE(one.ok()) << one.status();
  absl::Status status = (*one)->runner().Step({&step, 1}, (*one)->kv(),
                                              {.on_logits = [&](int, int, std::span<float> row) {
                                                expected.assign(row.begin(), row.end());
                                              }});
  ASSERT_TRUE(status.ok()) << status;
  auto group = testing::MakeCpuRankGroup(checkpoint, setup, 2);
  ASSERT_TRUE(group.ok()) << group.status();
  status = (*group)->Step({&step, 1}, {.on_logits = [&](int, int, std::span<float> row) {
                            actual.assign(row.begin(), row.end());
                          }});
  ASSERT_TRUE(status.ok()) << status;

  EXPECT_EQ(actual, expected);
}

}  // namespace
}  // namespace baton::engine
