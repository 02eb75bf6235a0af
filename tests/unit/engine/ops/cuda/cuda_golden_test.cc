// Whole models on the CUDA backend against float32 outputs: every architecture of
// tests/golden/arch, and the bundled model for a few tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/support/cuda_setups.h"
#include "tests/support/golden_arch.h"
#include "tests/support/golden_data.h"
#include "tests/support/golden_engine.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_paths.h"

namespace baton::testing {
namespace {

using engine::KvDType;

std::int32_t Best(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// What `logits` give away at most by taking the best of values that are off by `error` each.
bool MayBeBest(std::span<const float> logits, std::int32_t token, double error) {
  return logits[token] + 2 * error >= logits[Best(logits)];
}

class CudaGoldenTest : public ::testing::TestWithParam<EngineSetup> {
 protected:
  // Of a logit, as a share of the largest: half a unit in T's last place for each of about 16
  // roundings in a row that the residual stream of two layers collects (normed, qkv, attention,
  // gated, twice, and products of several such), added up as if they all agreed.
  double Tolerance() const {
    return (GetParam().kv == KvDType::kBF16 ? std::ldexp(1.0, -9) : std::ldexp(1.0, -12)) * 16;
  }
};

TEST_P(CudaGoldenTest, ArchitecturesAreNearTheGoldenLogitsAndChooseTheirTokens) {
  const auto models = FindArchModels(GoldenDir() + "/arch");
  ASSERT_TRUE(models.ok()) << models.status();
  for (const ArchModel& model : *models) {
    SCOPED_TRACE(model.name);
    const TempDirectory temp;
    auto engine = GoldenEngine::Create(LinkArchModel(model, temp), GetParam());
    ASSERT_TRUE(engine.ok()) << engine.status();
    double highest = 0;
    int num_steps = 0, num_best = 0;
    for (const ArchPrompt& prompt : model.prompts) {
      std::vector<std::int32_t> tokens = prompt.input_ids;
      tokens.insert(tokens.end(), prompt.greedy_ids.begin(), prompt.greedy_ids.end());
      const int first = static_cast<int>(prompt.input_ids.size()) - 1;
      double scale = 0;
      for (const float logit : prompt.last_logits) scale = std::max<double>(scale, std::abs(logit));
      const absl::Status status =
          (*engine)->Forced(tokens, first, [&](int position, std::span<const float> logits) {
            if (position == first) {
              ASSERT_EQ(logits.size(), prompt.last_logits.size());
              for (std::size_t i = 0; i < logits.size(); ++i) {
                const double error = std::abs(double{logits[i]} - prompt.last_logits[i]) / scale;
                highest = std::isfinite(error) ? std::max(highest, error) : HUGE_VAL;
              }
            }
            if (position + 1 == static_cast<int>(tokens.size())) return;
            ++num_steps;
            num_best += Best(logits) == tokens[position + 1] ? 1 : 0;
            EXPECT_TRUE(MayBeBest(logits, tokens[position + 1], Tolerance() * scale))
                << "position " << position << " of " << tokens.size();
          });
      ASSERT_TRUE(status.ok()) << status;
    }
    std::cout << absl::StrFormat("%-28s largest logit error %.1e, best tokens %d of %d\n",
                                 model.name, highest, num_best, num_steps);
    EXPECT_LE(highest, Tolerance());
    EXPECT_GE(num_best, 0.95 * num_steps);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaGoldenTest, ::testing::ValuesIn(CudaSetups()),
                         [](const auto& tested) { return SetupName(tested.param); });

// int4 weights as they are, 30 layers, 9 heads over 3: a few tokens, since emulation is slow.
TEST(CudaSmolLm2Test, ShortestPromptGoesOnAsTheGoldenOne) {
  const std::string path = SmolLm2Path();
  if (path.empty()) GTEST_SKIP() << "SmolLM2 is not here; scripts/ has the download";
  const auto set = LoadGoldenSet(GoldenDir() + "/smollm2");
  ASSERT_TRUE(set.ok()) << set.status();
  const auto prompt = std::min_element(set->greedy.begin(), set->greedy.end(),
                                       [](const GoldenPrompt& a, const GoldenPrompt& b) {
                                         return a.prompt_ids.size() < b.prompt_ids.size();
                                       });
  EngineSetup setup = CudaSetup(KvDType::kF16);
  setup.kv_tokens = 128;
  auto engine = GoldenEngine::Create(path, setup);
  ASSERT_TRUE(engine.ok()) << engine.status();

  constexpr int kTokens = 4;
  const auto outputs = (*engine)->Greedy(std::vector<GoldenEngine::GreedyRequest>{
      {.prompt = prompt->prompt_ids, .max_tokens = kTokens}});

  ASSERT_TRUE(outputs.ok()) << outputs.status();
  for (int i = 0; i < kTokens; ++i) {
    // Up to the first place where the float32 model itself is in doubt.
    if (prompt->margin[i] < 0.1) break;
    EXPECT_EQ(outputs->at(0)[i], prompt->output_ids[i]) << "token " << i;
  }
}

}  // namespace
}  // namespace baton::testing
