// AWQ and GPTQ models against the same models with their weights written out as F32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/support/awq_gptq_packer.h"
#include "tests/support/engine_setups.h"
#include "tests/support/golden_engine.h"
#include "tests/support/test_paths.h"

namespace baton::testing {
namespace {

using Method = Int4Packing::Method;

struct Case {
  const char* name;
  const char* model;  // under tests/golden/arch
  Int4Packing packing;
};
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

std::vector<std::int32_t> RandomPrompt(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> prompt(40);
  for (auto& token : prompt) token = static_cast<std::int32_t>(3 + random() % 500);
  return prompt;
}

std::vector<std::vector<float>> LogitsOf(GoldenEngine& engine,
                                         std::span<const std::int32_t> tokens) {
  std::vector<std::vector<float>> logits;
  const absl::Status status = engine.Forced(tokens, 0, [&](int, std::span<const float> row) {
    logits.emplace_back(row.begin(), row.end());
  });
  EXPECT_TRUE(status.ok()) << status;
  return logits;
}

float LargestDifference(const std::vector<std::vector<float>>& a,
                        const std::vector<std::vector<float>>& b) {
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < a[i].size(); ++k) {
      largest = std::max(largest, std::abs(a[i][k] - b[i][k]));
    }
  }
  return largest;
}

class Int4ModelsTest : public ::testing::TestWithParam<Case> {
 protected:
  PackedDirectory directory_{GoldenDir() + "/arch/" + GetParam().model, GetParam().packing, 21};
  const std::vector<std::int32_t> prompt_ = RandomPrompt(4);

  std::vector<std::vector<float>> Logits(const std::string& path, const EngineSetup& setup) {
    const auto engine = GoldenEngine::Create(path, setup);
    if (!engine.ok()) {
      ADD_FAILURE() << engine.status();
      return {};
    }
    return LogitsOf(**engine, prompt_);
  }
  std::vector<std::int32_t> Greedy(const std::string& path, const EngineSetup& setup) {
    const auto engine = GoldenEngine::Create(path, setup);
    if (!engine.ok()) {
      ADD_FAILURE() << engine.status();
      return {};
    }
    const GoldenEngine::GreedyRequest request{.prompt = prompt_, .max_tokens = 32};
    const auto outputs = (*engine)->Greedy({&request, 1});
    return outputs.ok() ? outputs->front() : std::vector<std::int32_t>();
  }
};

TEST_P(Int4ModelsTest, ReferenceLogitsAreThoseOfTheWeightsWrittenOut) {
  ASSERT_GT(directory_.num_packed, 0);

  const auto packed = Logits(directory_.packed.path(), {});
  const auto plain = Logits(directory_.plain.path(), {});

  ASSERT_EQ(packed.size(), prompt_.size());
  EXPECT_EQ(packed, plain);
}

TEST_P(Int4ModelsTest, CpuLogitsAreThoseOfTheReference) {
  const auto expected = Logits(directory_.packed.path(), {});
  for (const auto compute : {engine::ComputeMode::kF32, engine::ComputeMode::kFast}) {
    const EngineSetup setup{.backend = Backend::kCpu, .compute = compute, .num_threads = 2};
    SCOPED_TRACE(SetupName(setup));

    const auto actual = Logits(directory_.packed.path(), setup);

    ASSERT_EQ(actual.size(), expected.size());
    // Logits have a standard deviation of about 3.
    const float limit = compute == engine::ComputeMode::kF32 ? 1e-3f : 3e-2f;
    EXPECT_LE(LargestDifference(expected, actual), limit);
  }
}

TEST_P(Int4ModelsTest, GreedyTokensAreThoseOfTheWeightsWrittenOut) {
  const auto expected = Greedy(directory_.plain.path(), {});
  ASSERT_EQ(expected.size(), 32u);
  for (const EngineSetup& setup : F32Setups()) {
    EXPECT_EQ(Greedy(directory_.packed.path(), setup), expected) << SetupName(setup);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Every, Int4ModelsTest,
    ::testing::Values(
        Case{"Awq", "llama31", {}}, Case{"AwqWholeColumns", "llama31", {.group_size = -1}},
        Case{"AwqBiases", "llama_untied_bias", {.group_size = 64}},
        Case{"Gptq", "llama31", {.method = Method::kGptq}},
        Case{"GptqV2", "llama31", {.method = Method::kGptqV2}},
        Case{"GptqActOrder", "llama_untied_bias", {.method = Method::kGptq, .act_order = true}},
        // One order for the parts of a fused map, which are views of its rows.
        Case{"GptqActOrderFused", "phi3", {.method = Method::kGptq, .act_order = true}},
        Case{"GptqActOrderExperts", "mixtral", {.method = Method::kGptqV2, .act_order = true}}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace baton::testing
