// Whole models against the reference outputs under tests/golden, with the tolerances of its
// READMEs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/support/engine_setups.h"
#include "tests/support/golden_data.h"
#include "tests/support/golden_engine.h"
#include "tests/support/golden_scores.h"
#include "tests/support/test_paths.h"

namespace baton::testing {
namespace {

constexpr double kLogprobTolerance = 2e-3;  // tests/golden/README.md
constexpr double kLogprobSuspicion = 2e-4;  // "probably different, not just rounded"

std::vector<EngineSetup> Only(std::vector<EngineSetup> setups, Backend backend) {
  std::erase_if(setups, [&](const EngineSetup& setup) { return setup.backend != backend; });
  return setups;
}

std::vector<EngineSetup> FastSetups() {
  std::vector<EngineSetup> setups = Only(AllSetups(), Backend::kCpu);
  std::erase_if(
      setups, [](const EngineSetup& setup) { return setup.compute != engine::ComputeMode::kFast; });
  return setups;
}

// The `count` shortest prompts: what a slow backend can compute whole in a test.
std::vector<GoldenPrompt> Shortest(std::vector<GoldenPrompt> prompts, std::size_t count) {
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](const GoldenPrompt& a, const GoldenPrompt& b) {
                     return a.prompt_ids.size() < b.prompt_ids.size();
                   });
  prompts.resize(std::min(count, prompts.size()));
  return prompts;
}

// `set` with the log-probabilities of its `count` shortest prompts only.
GoldenSet WithShortestLogits(GoldenSet set, std::size_t count) {
  std::vector<GoldenPrompt> prompts;
  for (const GoldenLogits& logits : set.logits) {
    if (const GoldenPrompt* prompt = set.Find(logits.id)) prompts.push_back(*prompt);
  }
  prompts = Shortest(std::move(prompts), count);
  std::erase_if(set.logits, [&](const GoldenLogits& logits) {
    return std::none_of(prompts.begin(), prompts.end(),
                        [&](const GoldenPrompt& prompt) { return prompt.id == logits.id; });
  });
  return set;
}

// Loads the golden set and the engine under test. A subclass names the model.
class GoldenOutputsTest : public ::testing::TestWithParam<EngineSetup> {
 protected:
  void Load(const std::string& model_path, const std::string& golden_folder) {
    auto set = LoadGoldenSet(GoldenDir() + "/" + golden_folder);
    ASSERT_TRUE(set.ok()) << set.status();
    set_ = *std::move(set);
    auto engine = GoldenEngine::Create(model_path, GetParam());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  void ExpectF32Logprobs(const LogprobErrors& errors) {
    std::cout << ToString(errors) << "\n";
    EXPECT_GT(errors.count, 0);
    EXPECT_LE(errors.max, kLogprobTolerance);
    EXPECT_LE(errors.mean, kLogprobSuspicion);
  }

  void ExpectF32Greedy(const std::vector<GoldenPrompt>& prompts, std::int32_t stop_token) {
    ASSERT_FALSE(prompts.empty());
    const auto score = ScoreGreedy(*engine_, prompts, stop_token);
    ASSERT_TRUE(score.ok()) << score.status();
    std::cout << ToString(*score) << "\n";
    EXPECT_TRUE(score->broken_f32_demands.empty())
        << absl::StrJoin(score->broken_f32_demands, "\n");
  }

  GoldenSet set_;
  std::unique_ptr<GoldenEngine> engine_;
};

// The tiny pair, in float: every backend, all prompts.
class GoldenTinyTest : public GoldenOutputsTest {
 protected:
  static constexpr std::int32_t kStop = 4;  // <|end|>
  void SetUp() override { Load(ModelsDir() + "/tiny/target", "tiny"); }
};

TEST_P(GoldenTinyTest, GreedyTokensAreTheGoldenOnesWhereTheyAreSure) {
  ExpectF32Greedy(set_.greedy, kStop);
}

TEST_P(GoldenTinyTest, LogprobsAreWithinTolerance) {
  const auto errors = ScoreLogits(*engine_, set_);
  ASSERT_TRUE(errors.ok()) << errors.status();
  ExpectF32Logprobs(*errors);
}

TEST_P(GoldenTinyTest, PromptLogprobsAreWithinTolerance) {
  const auto score = ScorePromptLogprobs(*engine_, set_);
  ASSERT_TRUE(score.ok()) << score.status();
  std::cout << ToString(*score) << "\n";
  ExpectF32Logprobs(score->errors);
}

INSTANTIATE_TEST_SUITE_P(F32Backends, GoldenTinyTest, ::testing::ValuesIn(F32Setups()),
                         [](const auto& tested) { return SetupName(tested.param); });

// The tiny pair in fast arithmetic: by the measure of llama.cpp too.
class GoldenTinyFastTest : public GoldenTinyTest {};

TEST_P(GoldenTinyFastTest, ForcedStepsAgreeAndLogprobsAreNear) {
  const auto forced = ScoreForced(*engine_, set_.greedy);
  const auto errors = ScoreLogits(*engine_, set_);
  ASSERT_TRUE(forced.ok()) << forced.status();
  ASSERT_TRUE(errors.ok()) << errors.status();
  std::cout << ToString(*forced) << "\n" << ToString(*errors) << "\n";
  EXPECT_GT(forced->num_steps, 0);
  EXPECT_GE(forced->agreement(), 0.97);
  EXPECT_GT(errors->count, 0);
  EXPECT_LE(errors->median, 0.073);
  EXPECT_LE(errors->mean, 0.098);
  EXPECT_LE(errors->p95, 0.27);
  EXPECT_LE(errors->max, 0.93);
}

INSTANTIATE_TEST_SUITE_P(Cpu, GoldenTinyFastTest, ::testing::ValuesIn(FastSetups()),
                         [](const auto& tested) { return SetupName(tested.param); });

class GoldenSmolLm2Test : public GoldenOutputsTest {
 protected:
  static constexpr std::int32_t kStop = 2;  // <|im_end|>
  void SetUp() override {
    const std::string path = SmolLm2Path();
    if (path.empty()) GTEST_SKIP() << "SmolLM2 is not here; scripts/ has the download";
    Load(path, "smollm2");
  }
};

// The reference is slow: a few short prompts.
class GoldenSmolLm2ReferenceTest : public GoldenSmolLm2Test {};

TEST_P(GoldenSmolLm2ReferenceTest, GreedyTokensAreTheGoldenOnesWhereTheyAreSure) {
  std::vector<GoldenPrompt> prompts = Shortest(set_.greedy, 6);
  for (GoldenPrompt& prompt : prompts) {
    const std::size_t length = std::min<std::size_t>(prompt.output_ids.size(), 24);
    prompt.output_ids.resize(length);
    prompt.margin.resize(length);
  }
  ExpectF32Greedy(prompts, kStop);
}

TEST_P(GoldenSmolLm2ReferenceTest, LogprobsOfShortPromptsAreWithinTolerance) {
  const auto errors = ScoreLogits(*engine_, WithShortestLogits(set_, 4));
  ASSERT_TRUE(errors.ok()) << errors.status();
  ExpectF32Logprobs(*errors);
}

INSTANTIATE_TEST_SUITE_P(Reference, GoldenSmolLm2ReferenceTest,
                         ::testing::ValuesIn(Only(F32Setups(), Backend::kReference)),
                         [](const auto& tested) { return SetupName(tested.param); });

// A fast backend in float arithmetic: everything.
class GoldenSmolLm2F32Test : public GoldenSmolLm2Test {};

TEST_P(GoldenSmolLm2F32Test, GreedyTokensAreTheGoldenOnesWhereTheyAreSure) {
  ExpectF32Greedy(set_.greedy, kStop);
}

TEST_P(GoldenSmolLm2F32Test, LogprobsAreWithinTolerance) {
  const auto errors = ScoreLogits(*engine_, set_);
  ASSERT_TRUE(errors.ok()) << errors.status();
  ExpectF32Logprobs(*errors);
}

TEST_P(GoldenSmolLm2F32Test, PromptLogprobsAreWithinTolerance) {
  const auto score = ScorePromptLogprobs(*engine_, set_);
  ASSERT_TRUE(score.ok()) << score.status();
  std::cout << ToString(*score) << "\n";
  ExpectF32Logprobs(score->errors);
}

INSTANTIATE_TEST_SUITE_P(Cpu, GoldenSmolLm2F32Test,
                         ::testing::ValuesIn(Only(F32Setups(), Backend::kCpu)),
                         [](const auto& tested) { return SetupName(tested.param); });

// 8-bit activations and f16 KV: at least as near to float32 as llama.cpp on the same file; the
// figures are those of tests/golden/smollm2/README.md, as shares so that other sets can be run.
class GoldenSmolLm2FastTest : public GoldenSmolLm2Test {};

TEST_P(GoldenSmolLm2FastTest, AsManyPromptsAgreeAsWithLlamaCpp) {
  const auto score = ScoreGreedy(*engine_, set_.greedy, kStop);
  ASSERT_TRUE(score.ok()) << score.status();
  std::cout << ToString(*score) << "\n";
  ASSERT_GT(score->num_prompts, 0);
  EXPECT_GE(score->agree_16 * 32, score->num_prompts * 18);
  EXPECT_GE(score->agree_32 * 32, score->num_prompts * 15);
  EXPECT_GE(score->agree_64 * 32, score->num_prompts * 11);
}

TEST_P(GoldenSmolLm2FastTest, ForcedStepsAgreeAsOftenAsWithLlamaCpp) {
  // As many of the shortest as llama.cpp was measured on.
  const auto score = ScoreForced(*engine_, Shortest(set_.greedy, 29));
  ASSERT_TRUE(score.ok()) << score.status();
  std::cout << ToString(*score) << "\n";
  EXPECT_GT(score->num_steps, 0);
  EXPECT_GE(score->agreement(), 0.97);
  EXPECT_LE(score->highest_parting_margin, 0.5);
}

TEST_P(GoldenSmolLm2FastTest, LogprobsAreNoFurtherOffThanLlamaCpps) {
  const auto errors = ScoreLogits(*engine_, set_);
  ASSERT_TRUE(errors.ok()) << errors.status();
  std::cout << ToString(*errors) << "\n";
  EXPECT_GT(errors->count, 0);
  EXPECT_LE(errors->median, 0.073);
  EXPECT_LE(errors->mean, 0.098);
  EXPECT_LE(errors->p95, 0.27);
  EXPECT_LE(errors->max, 0.93);
}

TEST_P(GoldenSmolLm2FastTest, PerplexityIsNoFurtherOffThanLlamaCpps) {
  const auto score = ScorePromptLogprobs(*engine_, set_);
  ASSERT_TRUE(score.ok()) << score.status();
  std::cout << ToString(*score) << "\n";
  EXPECT_GT(score->errors.count, 0);
  EXPECT_LE(std::abs(score->perplexity / score->golden_perplexity - 1), 21.729 / 21.497 - 1);
}

INSTANTIATE_TEST_SUITE_P(Cpu, GoldenSmolLm2FastTest, ::testing::ValuesIn(FastSetups()),
                         [](const auto& tested) { return SetupName(tested.param); });

}  // namespace
}  // namespace baton::testing
