#include "worker/engine_host.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/test_paths.h"

namespace baton::worker {
namespace {

WorkerConfig TinyConfig() {
  WorkerConfig config;
  config.model = testing::ModelsDir() + "/tiny/draft";
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 32;
  config.kv_blocks = 16;
  config.threads = 1;
  return config;
}

// 16 tokens of 2 layers with 1 head of 8 in f16: 1 KiB a block over both layers.
engine::KvLayout SmallLayout() { return {2, 1, 8, 16, engine::KvDType::kF16}; }

TEST(ChooseNumBlocksTest, TakesTheNumberGiven) {
  WorkerConfig config;
  config.kv_blocks = 77;

  EXPECT_EQ(*ChooseNumBlocks(config, SmallLayout(), 4096, 1 << 30), 77);
}

TEST(ChooseNumBlocksTest, DividesTheMemoryGiven) {
  WorkerConfig config;
  config.kv_memory = 10 * 1024 + 500;

  EXPECT_EQ(*ChooseNumBlocks(config, SmallLayout(), 4096, 1 << 30), 10);
}

TEST(ChooseNumBlocksTest, RefusesMemoryForLessThanOneBlock) {
  WorkerConfig config;
  config.kv_memory = 1000;

  const auto blocks = ChooseNumBlocks(config, SmallLayout(), 4096, 1 << 30);

  EXPECT_EQ(blocks.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChooseNumBlocksTest, TakesWhatTheSequencesUsuallyNeed) {
  WorkerConfig config;
  config.max_num_seqs = 3;

  EXPECT_EQ(*ChooseNumBlocks(config, SmallLayout(), 1024, 1 << 30), 3 * 64);
  EXPECT_EQ(*ChooseNumBlocks(config, SmallLayout(), 1 << 13, std::uint64_t{1} << 40), 512);
}

TEST(ChooseNumBlocksTest, TakesAtMostAQuarterOfTheMachine) {
  WorkerConfig config;
  config.max_num_seqs = 1000;

  EXPECT_EQ(*ChooseNumBlocks(config, SmallLayout(), 2048, 1 << 20), 256);
}

TEST(EngineHostTest, LoadsTheTinyModelAndSaysWhatItIs) {
  const auto host = EngineHost::Create(TinyConfig());

  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ((*host)->allocator().num_blocks(), 16);
  EXPECT_EQ((*host)->fingerprint().compute.rfind("fast ", 0), 0u);  // and the instruction set
  EXPECT_EQ((*host)->fingerprint().kv_dtype, "f16");
  EXPECT_EQ((*host)->fingerprint().num_layers, (*host)->num_layers());
  EXPECT_FALSE((*host)->fingerprint().model.empty());
  const kvtransfer::KvMemory memory = (*host)->transfer_memory();
  ASSERT_EQ(memory.ranks.size(), 1u);
  EXPECT_EQ(static_cast<int>(memory.ranks[0].layers.size()), (*host)->num_layers());
  EXPECT_EQ(memory.ranks[0].block_bytes, (*host)->layout().block_bytes());
  EXPECT_EQ(memory.cut(), (*host)->cut());
}

TEST(EngineHostTest, StatesEachLayersWindowWhereThereIsOne) {
  WorkerConfig config = TinyConfig();
  config.model = BATON_SOURCE_DIR "/tests/golden/arch/gemma2";
  const auto mixed = EngineHost::Create(config);
  config.model = BATON_SOURCE_DIR "/tests/golden/arch/qwen2";  // states one and does not use it
  const auto none = EngineHost::Create(config);

  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_EQ((*mixed)->fingerprint().windows, (std::vector<std::int32_t>{16, 0, 16}));
  EXPECT_EQ((*mixed)->fingerprint().WidestWindow(), 0);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE((*none)->fingerprint().windows.empty());
}

TEST(EngineHostTest, ComputesAStep) {
  const auto host = EngineHost::Create(TinyConfig());
  ASSERT_TRUE(host.ok()) << host.status();
  const std::vector<std::int32_t> tokens = {1, 2, 3};
  const std::vector<engine::BlockId> table = {5};
  const std::vector<engine::SequenceStep> steps = {{tokens, 0, table, engine::LogitRows::kLast}};
  int layers = 0;
  std::size_t num_logits = 0;

  const absl::Status status = (*host)->Step(
      steps, {.on_layer = [&](int) { ++layers; },
              .on_logits = [&](int, int, std::span<float> logits) { num_logits = logits.size(); }});

  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(layers, (*host)->num_layers());
  EXPECT_EQ(static_cast<int>(num_logits), (*host)->vocab_size());
}

TEST(EngineHostTest, Float32MeansF32ArithmeticAndKv) {
  WorkerConfig config = TinyConfig();
  config.dtype = "float32";

  const auto host = EngineHost::Create(config);

  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ((*host)->fingerprint().compute.rfind("f32 ", 0), 0u);
  EXPECT_EQ((*host)->fingerprint().kv_dtype, "f32");
}

TEST(EngineHostTest, AMissingModelIsAnErrorWithItsPath) {
  WorkerConfig config = TinyConfig();
  config.model = "/no/such/model.gguf";

  const auto host = EngineHost::Create(config);

  EXPECT_FALSE(host.ok());
  EXPECT_NE(host.status().message().find("/no/such/model.gguf"), absl::string_view::npos)
      << host.status();
}

TEST(EngineHostTest, AGroupShowsEveryRanksMemory) {
  WorkerConfig config = TinyConfig();
  const auto one = EngineHost::Create(config);
  ASSERT_TRUE(one.ok()) << one.status();
  config.tensor_parallel_size = 2;

  const auto group = EngineHost::Create(config);

  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->fingerprint(), (*one)->fingerprint());
  EXPECT_EQ((*group)->cut().tensor_parallel_size, 2);
  const kvtransfer::KvMemory whole = (*one)->transfer_memory(),
                             shared = (*group)->transfer_memory();
  ASSERT_EQ(shared.ranks.size(), 2u);
  EXPECT_EQ(shared.cut(), (*group)->cut());
  EXPECT_EQ(shared.ranks[0].block_bytes + shared.ranks[1].block_bytes, whole.ranks[0].block_bytes);
}

TEST(EngineHostTest, RefusesMoreRanksThanTheModelOrTheBackendTakes) {
  WorkerConfig config = TinyConfig();
  config.tensor_parallel_size = 64;
  EXPECT_EQ(EngineHost::Create(config).status().code(), absl::StatusCode::kFailedPrecondition);

  config.tensor_parallel_size = 2;
  config.backend = "reference";
  EXPECT_EQ(EngineHost::Create(config).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace baton::worker
