// The course of steps on the CUDA backend: recording and replay, what a step may not do, sampling,
// and failures of every call of the runtime.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda_emulation/controls.h"
#include "engine/ops/cuda/memory_budget.h"
#include "engine/ops/cuda/step_graphs.h"
#include "engine/sampling/sampler.h"
#include "tests/support/cuda_setups.h"
#include "tests/support/golden_engine.h"
#include "tests/support/random_checkpoint.h"

namespace baton::testing {
namespace {

using checkpoint::DType;
using engine::BlockId;
using engine::KvDType;
using engine::LogitRows;
using engine::SequenceStep;

std::shared_ptr<const checkpoint::Checkpoint> SmallModel(int num_experts = 0) {
  auto metadata = TinyMetadata();
  metadata.hidden_size = 64;
  metadata.intermediate_size = 96;
  metadata.num_heads = 4;
  metadata.num_kv_heads = 2;
  metadata.head_dim = metadata.rope.dim = 16;
  if (num_experts > 0) {
    metadata.num_experts = num_experts;
    metadata.experts_per_token = 2;
    metadata.expert_intermediate_size = 64;
  }
  return MakeRandomCheckpoint(metadata, DType::kF32, 3);
}

// Sequences that are decoded together, each with its sampling.
class Batch {
 public:
  Batch(GoldenEngine& engine, int num_sequences, const SamplingParams& sampling) : engine_(engine) {
    std::mt19937 random(5);
    for (int i = 0; i < num_sequences; ++i) {
      Sequence& sequence = sequences_.emplace_back();
      sequence.sampling = sampling;
      sequence.sampling.seed = random();
      sequence.tokens.resize(1 + random() % 20);
      sequence.prompt_size = static_cast<int>(sequence.tokens.size());
      for (auto& token : sequence.tokens) token = static_cast<std::int32_t>(random() % 131);
      auto blocks = engine.allocator().Allocate(3);
      EXPECT_TRUE(blocks.ok()) << blocks.status();
      sequence.blocks = *std::move(blocks);
    }
  }
  // Computes all tokens not yet computed of the first `count` sequences, and samples.
  absl::Status Step(int count, const engine::LayerHook& on_layer = nullptr) {
    std::vector<SequenceStep> steps;
    for (int i = 0; i < count; ++i) {
      Sequence& s = sequences_[i];
      steps.push_back({.tokens = std::span(s.tokens).subspan(s.num_computed),
                       .start_position = s.num_computed,
                       .block_table = s.blocks.ids(),
                       .prompt_length = s.prompt_size,
                       .sampling = &s.sampling,
                       .prompt = std::span(s.tokens).first(s.prompt_size),
                       .output = std::span(s.tokens).subspan(s.prompt_size)});
    }
    std::vector<SampledToken> sampled(count);
    absl::Status status = engine_.runner().Step(
        steps, engine_.kv(), {.on_layer = on_layer, .on_token = [&](int index, SampledToken token) {
                                sampled[index] = std::move(token);
                              }});
    if (!status.ok()) return status;
    for (int i = 0; i < count; ++i) {
      Sequence& s = sequences_[i];
      s.num_computed = static_cast<int>(s.tokens.size());
      s.tokens.push_back(sampled[i].token);
      s.sampled.push_back(std::move(sampled[i]));
    }
    return status;
  }
  std::vector<std::vector<std::int32_t>> tokens() const {
    std::vector<std::vector<std::int32_t>> all;
    for (const Sequence& sequence : sequences_) all.push_back(sequence.tokens);
    return all;
  }
  const std::vector<SampledToken>& sampled(int sequence) const {
    return sequences_[sequence].sampled;
  }

 private:
  struct Sequence {
    std::vector<std::int32_t> tokens;
    int prompt_size = 0;
    int num_computed = 0;
    engine::BlockList blocks;
    SamplingParams sampling;
    std::vector<SampledToken> sampled;
  };
  GoldenEngine& engine_;
  std::vector<Sequence> sequences_;
};

SamplingParams AllKindsOfSampling() {
  SamplingParams sampling;
  sampling.temperature = 0.8f;
  sampling.top_p = 0.9f;
  sampling.top_k = 40;
  sampling.repetition_penalty = 1.2f;
  sampling.frequency_penalty = 0.3f;
  sampling.min_tokens = 3;
  sampling.stop_token_ids = {1, 2, 3};
  return sampling;
}

std::unique_ptr<GoldenEngine> MakeEngine(bool graphs, KvDType type = KvDType::kBF16,
                                         int num_experts = 0) {
  EngineSetup setup = CudaSetup(type);
  setup.graphs = graphs;
  setup.kv_tokens = 512;
  auto engine = GoldenEngine::Create(SmallModel(num_experts), setup);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Tokens of a batch whose number of rows goes up and down.
std::vector<std::vector<std::int32_t>> Decode(GoldenEngine& engine) {
  Batch batch(engine, 7, AllKindsOfSampling());
  EXPECT_TRUE(batch.Step(3).ok());
  EXPECT_TRUE(batch.Step(7).ok());  // four of them start: rows of both kinds
  for (const int count : {7, 7, 7, 5, 3, 3, 3, 2, 1, 1, 1, 6, 4}) {
    const absl::Status status = batch.Step(count);
    EXPECT_TRUE(status.ok()) << status;
  }
  return batch.tokens();
}

TEST(CudaOpsTest, ReplayedStepsGiveTheTokensOfStepsAsTheyAre) {
  for (const int num_experts : {0, 5}) {
    SCOPED_TRACE(absl::StrCat(num_experts, " experts"));
    const auto direct = MakeEngine(/*graphs=*/false, KvDType::kBF16, num_experts);
    const auto replayed = MakeEngine(/*graphs=*/true, KvDType::kBF16, num_experts);
    ASSERT_TRUE(direct && replayed);
    const auto expected = Decode(*direct);
    const std::uint64_t before = cuda_emulation::CountersSoFar().graph_launches;

    const auto tokens = Decode(*replayed);

    EXPECT_EQ(tokens, expected);
    EXPECT_GT(cuda_emulation::CountersSoFar().graph_launches, before + 5);
  }
}

TEST(CudaOpsTest, AStepNeitherAllocatesNorCopiesMoreThanItsDataAndTokens) {
  for (const bool graphs : {false, true}) {
    SCOPED_TRACE(graphs ? "replayed" : "as it is");
    const auto engine = MakeEngine(graphs);
    ASSERT_TRUE(engine);
    Batch batch(*engine, 5, AllKindsOfSampling());
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(batch.Step(5).ok());
    const auto before = cuda_emulation::CountersSoFar();

    ASSERT_TRUE(batch.Step(5).ok());

    const auto after = cuda_emulation::CountersSoFar();
    EXPECT_EQ(after.allocations, before.allocations);
    // The step's data in, the tokens out; the latter is part of a graph, and not counted there.
    EXPECT_EQ(after.copies, before.copies + (graphs ? 1 : 2));
    EXPECT_EQ(after.host_waits, before.host_waits);
    EXPECT_EQ(after.graph_launches, before.graph_launches + (graphs ? 1 : 0));
  }
}

TEST(CudaOpsTest, SamplesOnTheHostWhatTheDeviceDoesNotKnow) {
  const auto engine = MakeEngine(/*graphs=*/true);
  ASSERT_TRUE(engine);
  SamplingParams sampling = AllKindsOfSampling();
  Batch plain(*engine, 3, sampling);
  sampling.logprobs = true;
  sampling.top_logprobs = 4;
  Batch scored(*engine, 3, sampling);
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(plain.Step(3).ok());
    ASSERT_TRUE(scored.Step(3).ok());
  }

  EXPECT_EQ(scored.tokens(), plain.tokens());
  for (const SampledToken& token : scored.sampled(1)) {
    EXPECT_EQ(token.top.size(), 4u);
    EXPECT_LT(token.logprob, 0.0f);
  }
}

TEST(CudaOpsTest, CallsTheLayerHookInOrderOnceForEachLayer) {
  const auto engine = MakeEngine(/*graphs=*/true);
  ASSERT_TRUE(engine);
  Batch batch(*engine, 4, SamplingParams{});
  for (int step = 0; step < 4; ++step) {
    std::vector<int> layers;
    ASSERT_TRUE(batch.Step(4, [&](int layer) { layers.push_back(layer); }).ok());
    std::vector<int> expected(engine->runner().plan().layers.size());
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(layers, expected);
  }
}

TEST(CudaOpsTest, RefusesPoolsAndShapesThatItCannotComputeWith) {
  const auto engine = MakeEngine(/*graphs=*/true);
  ASSERT_TRUE(engine);
  auto foreign = engine::KvPool::Create(engine->kv().layout(), 4);
  ASSERT_TRUE(foreign.ok());
  const std::vector<std::int32_t> tokens = {1, 2};
  const std::vector<BlockId> blocks = {0};
  const SequenceStep step{.tokens = tokens, .block_table = blocks};
  EXPECT_EQ(engine->runner().Step({&step, 1}, **foreign, {}).code(),
            absl::StatusCode::kInvalidArgument);

  EngineSetup setup = CudaSetup(KvDType::kBF16);
  setup.block_size = 8;
  EXPECT_EQ(GoldenEngine::Create(SmallModel(), setup).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Loads, decodes with graphs and a prefill with hooks, samples on the host once.
absl::Status RunEverything() {
  EngineSetup setup = CudaSetup(KvDType::kF16);
  setup.kv_tokens = 256;
  auto engine = GoldenEngine::Create(SmallModel(), setup);
  if (!engine.ok()) return engine.status();
  SamplingParams sampling;
  sampling.logprobs = true;
  Batch batch(**engine, 2, sampling);
  for (int i = 0; i < 4; ++i) {
    const auto hook = i == 0 ? engine::LayerHook([](int) {}) : nullptr;
    if (absl::Status status = batch.Step(2, hook); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(CudaOpsTest, EveryFailedCallIsAStatusAndLeaksNothing) {
  for (const char* call : {"cudaGetDeviceCount",
                           "cudaGetDeviceProperties",
                           "cudaSetDevice",
                           "cudaMalloc",
                           "cudaHostAlloc",
                           "cudaMallocHost",
                           "cudaMemset",
                           "cudaMemcpy",
                           "cudaMemcpyAsync",
                           "cudaStreamCreateWithFlags",
                           "cudaEventCreateWithFlags",
                           "cudaEventRecord",
                           "cudaEventQuery",
                           "cudaLaunchKernelExC",
                           "cudaFuncSetAttribute",
                           "cudaStreamBeginCapture",
                           "cudaStreamEndCapture",
                           "cudaGraphInstantiate",
                           "cudaGraphLaunch",
                           "kernel"}) {
    // The first two, and ever fewer of the later ones.
    for (int after = 0;; after += 1 + after) {
      SCOPED_TRACE(absl::StrCat(call, " number ", after + 1));
      const auto before = cuda_emulation::CountLiveObjects();
      cuda_emulation::InjectFault({.call = call, .error = cudaErrorUnknown, .after = after});
      const absl::Status status = RunEverything();
      cuda_emulation::ClearFaults();
      cuda_emulation::ResetDevices();
      cudaGetLastError();
      // A device that a kernel has failed on gives nothing back any more, not even memory.
      if (std::string_view(call) != "kernel") {
        EXPECT_TRUE(cuda_emulation::CountLiveObjects() == before);
      }
      if (status.ok()) break;  // so many calls there are not
    }
  }
}

TEST(StepGraphsTest, FillsStepsUpToFewShapes) {
  const auto rows = [](int num_rows) {
    return engine::cuda::DecodeShape(num_rows, 1, /*max_rows=*/60, /*max_blocks=*/100).num_rows;
  };
  EXPECT_EQ(rows(1), 1);
  EXPECT_EQ(rows(3), 4);
  EXPECT_EQ(rows(5), 8);
  EXPECT_EQ(rows(9), 16);
  EXPECT_EQ(rows(17), 24);
  EXPECT_EQ(rows(57), 60);
  const auto blocks = [](int longest) {
    return engine::cuda::DecodeShape(1, longest, 60, /*max_blocks=*/100).max_blocks;
  };
  EXPECT_EQ(blocks(1), 16);
  EXPECT_EQ(blocks(17), 32);
  EXPECT_EQ(blocks(65), 100);
}

TEST(MemoryBudgetTest, LeavesWhatTheUtilizationAllowsBesideWhatIsUsed) {
  const auto left = engine::cuda::BudgetLeft(/*free=*/600, /*total=*/1000, 0.9);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(*left, 500u);
  EXPECT_EQ(engine::cuda::BudgetLeft(100, 1000, 0.9).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton::testing
