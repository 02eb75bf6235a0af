// Models computed by several ranks, each on an emulated device of its own, beside the same model on
// one device. Sums over columns are cut, so that bits may differ, by what rounding allows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda_emulation/controls.h"
#include "cuda_emulation/nccl/controls.h"
#include "tests/support/cuda_setups.h"
#include "tests/support/golden_arch.h"
#include "tests/support/golden_engine.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_paths.h"

namespace baton::testing {
namespace {

using checkpoint::Checkpoint;
using checkpoint::DType;
using engine::BlockId;
using engine::KvDType;
using engine::LogitRows;
using engine::SequenceStep;
using engine::StepHooks;

constexpr int kNewTokens = 3;

using StepFunction =
    std::function<absl::Status(std::span<const SequenceStep>, const StepHooks& hooks)>;

struct Outcome {
  std::vector<std::int32_t> tokens;        // chosen, greedily
  std::vector<std::vector<float>> logits;  // that each was chosen from
  std::vector<int> layers;                 // that the hook was called for
};

EngineSetup SmallSetup() {
  EngineSetup setup = CudaSetup(KvDType::kF16);
  setup.kv_tokens = 256;
  return setup;
}

// A prompt in two chunks, then token by token.
Outcome Generate(const StepFunction& step, std::vector<std::int32_t> tokens) {
  static const SamplingParams greedy{.temperature = 0.0f};
  const auto prompt_size = static_cast<int>(tokens.size());
  std::vector<BlockId> blocks(16);
  std::iota(blocks.begin(), blocks.end(), 0);
  Outcome outcome;
  int num_computed = 0;
  while (outcome.tokens.size() < kNewTokens) {
    const int left = static_cast<int>(tokens.size()) - num_computed;
    const bool last = num_computed > 0 || left == 1;
    const int count = last ? left : left / 2;
    const SequenceStep sequence{.tokens = std::span(tokens).subspan(num_computed, count),
                                .start_position = num_computed,
                                .block_table = blocks,
                                .logits = last ? LogitRows::kLast : LogitRows::kNone,
                                .prompt_length = prompt_size,
                                .sampling = last ? &greedy : nullptr,
                                .prompt = std::span(tokens).first(prompt_size),
                                .output = std::span(tokens).subspan(prompt_size)};
    const absl::Status status =
        step({&sequence, 1},
             {.on_layer = [&](int layer) { outcome.layers.push_back(layer); },
              .on_logits =
                  [&](int, int, std::span<float> row) {
                    outcome.logits.emplace_back(row.begin(), row.end());
                  },
              .on_token =
                  [&](int, const SampledToken& token) { outcome.tokens.push_back(token.token); }});
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return outcome;
    num_computed += count;
    if (last) tokens.push_back(outcome.tokens.back());
  }
  return outcome;
}

// A few roundings to f16 each layer, as the golden test counts them, on both sides.
double Tolerance(std::size_t num_layers) {
  return 2 * std::ldexp(1.0, -12) * (12 * static_cast<double>(num_layers) + 3);
}

void ExpectNear(const Outcome& actual, const Outcome& expected, double tolerance) {
  EXPECT_EQ(actual.tokens, expected.tokens);
  EXPECT_EQ(actual.layers, expected.layers);
  ASSERT_EQ(actual.logits.size(), expected.logits.size());
  double scale = 0, highest = 0;
  for (std::size_t row = 0; row < expected.logits.size(); ++row) {
    ASSERT_EQ(actual.logits[row].size(), expected.logits[row].size());
    for (std::size_t i = 0; i < expected.logits[row].size(); ++i) {
      const double error = std::abs(double{actual.logits[row][i]} - expected.logits[row][i]);
      highest = std::isfinite(error) ? std::max(highest, error) : HUGE_VAL;
      scale = std::max<double>(scale, std::abs(expected.logits[row][i]));
    }
  }
  EXPECT_LE(highest, tolerance * scale);
}

void ExpectRanksAgree(const std::shared_ptr<const Checkpoint>& checkpoint,
                      const std::vector<std::int32_t>& prompt) {
  auto one = GoldenEngine::Create(checkpoint, SmallSetup());
  ASSERT_TRUE(one.ok()) << one.status();
  const Outcome expected = Generate(
      [&](std::span<const SequenceStep> steps, const StepHooks& hooks) {
        return (*one)->runner().Step(steps, (*one)->kv(), hooks);
      },
      prompt);
  const double tolerance = Tolerance((*one)->runner().plan().layers.size());
  for (const int world_size : {2, 3, 4}) {
    SCOPED_TRACE(absl::StrCat(world_size, " ranks"));
    auto group = MakeCudaRankGroup(checkpoint, SmallSetup(), world_size);
    ASSERT_TRUE(group.ok()) << group.status();
    const Outcome actual =
        Generate([&](std::span<const SequenceStep> steps,
                     const StepHooks& hooks) { return (*group)->Step(steps, hooks); },
                 prompt);
    ExpectNear(actual, expected, tolerance);
  }
}

// Families with all that a layer may have: post norms, norms of q and k, biases, mixtures, heads
// that several ranks hold.
TEST(CudaTensorParallelTest, ArchitecturesChooseTheTokensOfOneDevice) {
  const auto models = FindArchModels(GoldenDir() + "/arch");
  ASSERT_TRUE(models.ok()) << models.status();
  int num_models = 0;
  for (const ArchModel& model : *models) {
    if (model.name.find('/') != std::string::npos) continue;  // a variant of rope
    SCOPED_TRACE(model.name);
    ++num_models;
    const TempDirectory temp;
    auto checkpoint = Checkpoint::Open(LinkArchModel(model, temp));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    std::vector<std::int32_t> prompt = model.prompts[0].input_ids;
    prompt.resize(std::min<std::size_t>(prompt.size(), 12));
    ExpectRanksAgree(*std::move(checkpoint), prompt);
  }
  EXPECT_GE(num_models, 10);
}

// Columns of quantized weights are cut between their groups, biases added once.
TEST(CudaTensorParallelTest, QuantizedModelsChooseTheTokensOfOneDevice) {
  for (const bool experts : {false, true}) {
    SCOPED_TRACE(experts ? "experts" : "dense");
    auto metadata = TinyMetadata();
    metadata.hidden_size = 64;
    metadata.intermediate_size = 128;
    metadata.num_heads = 4;
    metadata.num_kv_heads = 2;
    metadata.head_dim = metadata.rope.dim = 32;
    metadata.tied_embeddings = false;
    metadata.attention_bias = metadata.output_bias = metadata.mlp_bias = true;
    if (experts) {
      metadata.num_experts = 6;
      metadata.experts_per_token = 2;
      metadata.expert_intermediate_size = 128;
    }
    ExpectRanksAgree(MakeRandomCheckpoint(metadata, DType::kQ4_1, 5), {3, 17, 99, 4, 121, 60, 7});
  }
}

// The rank that NCCL fails ends the step on all, and no layer is said to be written after that.
TEST(CudaTensorParallelTest, AFailingExchangeEndsTheGroup) {
  auto group =
      MakeCudaRankGroup(MakeRandomCheckpoint(TinyMetadata(), DType::kF32, 3), SmallSetup(), 2);
  ASSERT_TRUE(group.ok()) << group.status();
  const std::vector<std::int32_t> tokens = {1, 2, 3};
  const std::vector<BlockId> blocks = {0};
  const SequenceStep step{.tokens = tokens, .block_table = blocks};
  int num_layers = 0;
  const StepHooks hooks{.on_layer = [&](int) { ++num_layers; }};
  ASSERT_TRUE((*group)->Step({&step, 1}, hooks).ok());
  const int num_all = std::exchange(num_layers, 0);
  ASSERT_GE(num_all, 2);

  cuda_emulation::InjectNcclFault("ncclAllGather", ncclSystemError);  // after the first layer's KV
  const absl::Status failed = (*group)->Step({&step, 1}, hooks);
  cuda_emulation::ClearFaults();

  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal) << failed;
  EXPECT_LE(num_layers, 1);
  EXPECT_EQ((*group)->Step({&step, 1}, hooks), failed);
  group->reset();
  EXPECT_EQ(cuda_emulation::LiveCommunicators(), 0);
}

}  // namespace
}  // namespace baton::testing

int main(int argc, char** argv) {
  setenv("CUDA_EMULATION_DEVICES", "4", /*overwrite=*/1);  // read at the first use
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
