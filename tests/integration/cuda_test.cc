// The CUDA backend behind the doors of a real cluster, its kernels in the host emulation.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/command_outcome.h"
#include "tests/support/completions.h"
#include "tests/support/cuda_setups.h"
#include "tests/support/golden_engine.h"
#include "tests/support/local_cluster.h"

namespace baton::testing {
namespace {

class CudaClusterTest : public ::testing::TestWithParam<const char*> {};

// A worker that does both, and prefill and decode workers whose pools lie in devices' memory, over
// every transport.
TEST_P(CudaClusterTest, AnswersWithTheTokensOfTheEngineAlone) {
  ASSERT_EQ(setenv("BATON_BINARY", BATON_EMULATED_BINARY, /*overwrite=*/1), 0);
  const std::vector<std::int32_t> prompt = {17, 230, 5, 99, 41, 300, 12};
  constexpr int kTokens = 6;
  EngineSetup setup = CudaSetup(engine::KvDType::kBF16);
  auto engine = GoldenEngine::Create(TinyModelPath(), setup);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto alone = (*engine)->Greedy(
      std::vector<GoldenEngine::GreedyRequest>{{.prompt = prompt, .max_tokens = kTokens}});
  ASSERT_TRUE(alone.ok()) << alone.status();

  const std::string kind = GetParam();
  const bool both = kind == "both";
  const auto cluster = LocalCluster::Start(
      TinyModelPath(), {both ? "--role=both" : absl::StrCat("--transport=", kind), "--backend=cuda",
                        "--dtype=bfloat16", "--max-num-seqs=16", "--max-num-batched-tokens=64",
                        "--gpu-memory-utilization=0.5", "--max-model-len=256"});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  nlohmann::json options = GreedyOptions(kTokens);
  options["ignore_eos"] = true;
  const auto tokens = Complete(**cluster, prompt, options);

  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, alone->at(0));
  std::vector<std::string> workers = {"decode-0"};
  if (!both) workers.push_back("prefill-0");
  EXPECT_TRUE(BooksAreBalancedAndIdle(**cluster, workers));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaClusterTest, ::testing::Values("both", "nccl", "shm", "grpc"),
                         [](const auto& kind) { return std::string(kind.param); });

// One worker of one or two ranks; then KV of two ranks handed to one.
TEST(CudaTensorParallelClusterTest, TwoRanksAnswerWithTheTokensOfOne) {
  ASSERT_EQ(setenv("BATON_BINARY", BATON_EMULATED_BINARY, /*overwrite=*/1), 0);
  ASSERT_EQ(setenv("CUDA_EMULATION_DEVICES", "2", /*overwrite=*/1), 0);
  const std::vector<std::int32_t> prompt = {17, 230, 5, 99, 41, 300, 12};
  nlohmann::json options = GreedyOptions(4);
  options["ignore_eos"] = true;
  std::vector<std::vector<std::int32_t>> answers;
  for (const auto& [form, ranks] : std::vector<std::pair<std::string, std::string>>{
           {"--role=both", "--tensor-parallel-size=1"},
           {"--role=both", "--tensor-parallel-size=2"},
           {"--transport=nccl", "--prefill-tensor-parallel-size=2"}}) {
    const auto cluster = LocalCluster::Start(
        TinyModelPath(),
        {form, ranks, "--backend=cuda", "--dtype=float16", "--max-num-seqs=16",
         "--max-num-batched-tokens=64", "--gpu-memory-utilization=0.4", "--max-model-len=256"});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const auto tokens = Complete(**cluster, prompt, options);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    answers.push_back(*tokens);
    EXPECT_TRUE(BooksAreBalancedAndIdle(**cluster, {"decode-0"}));
  }
  ASSERT_EQ(unsetenv("CUDA_EMULATION_DEVICES"), 0);
  EXPECT_EQ(answers[1], answers[0]);
  EXPECT_EQ(answers[2], answers[0]);
}

std::string Worker(const std::string& binary, const std::string& flags) {
  return absl::StrCat("timeout 60 ", binary, " decode --role both --model ", TinyModelPath(), " ",
                      flags);
}

TEST(CudaWorkerTest, ABuildWithoutCudaSaysSo) {
  const CommandOutcome outcome = RunCommand(Worker(BATON_PLAIN_BINARY, "--backend cuda"));

  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("backend cuda is not in this build"), std::string::npos)
      << outcome.output;
}

TEST(CudaWorkerTest, AMachineWithoutADeviceSaysSo) {
  const CommandOutcome outcome = RunCommand(
      absl::StrCat("CUDA_EMULATION_NO_DEVICE=1 ", Worker(BATON_EMULATED_BINARY, "--backend cuda")));

  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("no usable GPU"), std::string::npos) << outcome.output;
}

TEST(CudaWorkerTest, WhatCannotBeComputedOrHandedOverIsRefusedWithTheRemedy) {
  const std::string cuda = "--backend cuda --max-num-seqs 4 --max-model-len 64 ";
  // So small that workspaces and the model take more than the least share.
  ASSERT_EQ(setenv("CUDA_EMULATION_MEMORY_MB", "512", /*overwrite=*/1), 0);
  for (const auto& [flags, words] : std::vector<std::pair<std::string, std::string>>{
           {"--dtype float32", "set dtype to auto, bfloat16 or float16"},
           {"--block-size 8", "must be 16, 32 or 64"},
           {"--device 7", "no such device: 7"},
           {"--tp 2 --device 6", "tensor-parallel-size 2 takes devices 6 to 7"},
           {"--gpu-memory-utilization 0.05", "gpu-memory-utilization"}}) {
    const CommandOutcome outcome = RunCommand(Worker(BATON_EMULATED_BINARY, cuda + flags));
    EXPECT_EQ(outcome.code, 1) << flags;
    EXPECT_NE(outcome.output.find(words), std::string::npos) << flags << ": " << outcome.output;
  }
}

}  // namespace
}  // namespace baton::testing
