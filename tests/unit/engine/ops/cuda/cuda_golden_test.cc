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

// Of a logit, as a share of the largest: half a unit in T's last place for every rounding between
// embedding and logits, as if they all agreed. A layer rounds the inputs, weights and outputs of
// products, q and k after rope, softmax weights, attention and the gated product: 12; the ends
// round embedding, last input and head.
double Tolerance(KvDType type, std::size_t num_layers) {
  const double half_unit = type == KvDType::kBF16 ? std::ldexp(1.0, -9) : std::ldexp(1.0, -12);
  return half_unit * (12 * static_cast<double>(num_layers) + 3);
}

using CudaGoldenTest = ::testing::TestWithParam<EngineSetup>;

TEST_P(CudaGoldenTest, ArchitecturesAreNearTheGoldenLogitsAndChooseTheirTokens) {
  const auto models = FindArchModels(GoldenDir() + "/arch");
  ASSERT_TRUE(models.ok()) << models.status();
  for (const ArchModel& model : *models) {
    SCOPED_TRACE(model.name);
    const TempDirectory temp;
    auto engine = GoldenEngine::Create(LinkArchModel(model, temp), GetParam());
    ASSERT_TRUE(engine.ok()) << engine.status();
    const engine::ModelPlan& plan = (*engine)->runner().plan();
    const double tolerance = Tolerance(GetParam().kv, plan.layers.size());
    double highest = 0;
    int num_steps = 0, num_best = 0, num_near = 0;
    for (const ArchPrompt& prompt : model.prompts) {
      std::vector<std::int32_t> tokens = prompt.input_ids;
      tokens.insert(tokens.end(), prompt.greedy_ids.begin(), prompt.greedy_ids.end());
      const int first = static_cast<int>(prompt.input_ids.size()) - 1;
      double scale = 0;
      for (const float logit : prompt.last_logits) scale = std::max<double>(scale, std::abs(logit));
      const absl::Status status = (*engine)->Forced(
          tokens, first,
          [&](int position, std::span<const float> logits) {
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
            num_near += MayBeBest(logits, tokens[position + 1], tolerance * scale) ? 1 : 0;
          },
          first + 1);
      ASSERT_TRUE(status.ok()) << status;
    }
    std::cout << absl::StrFormat("%-28s largest logit error %.1e, best tokens %d of %d\n",
                                 model.name, highest, num_best, num_steps);
    EXPECT_LE(highest, tolerance);
    EXPECT_GE(num_best, 0.9 * num_steps);
    // Where two experts are all but equal, rounding may choose the other one: the oftener, the
    // coarser it is.
    const double others = plan.layers[0].num_experts == 0   ? 0.0
                          : GetParam().kv == KvDType::kBF16 ? 0.1
                                                            : 0.02;
    EXPECT_GE(num_near, (1 - others) * num_steps);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaGoldenTest, ::testing::ValuesIn(CudaSetups()),
                         [](const auto& tested) { return SetupName(tested.param); });

// int4 weights as they are, 30 layers, 9 heads over 3: a few tokens, since emulation is slow,
// beside the CPU in float, which the golden outputs judge.
TEST(CudaSmolLm2Test, GoesOnAsTheCpuDoesWhereThatIsSure) {
  const std::string path = SmolLm2Path();
  if (path.empty()) GTEST_SKIP() << "SmolLM2 is not here; scripts/ has the download";
  constexpr int kTokens = 3;
  const std::vector<std::int32_t> prompt = {1, 9690, 198, 2683, 359};
  EngineSetup setup = CudaSetup(KvDType::kF16);
  setup.kv_tokens = 64;
  auto engine = GoldenEngine::Create(path, setup);
  ASSERT_TRUE(engine.ok()) << engine.status();
  auto judge = GoldenEngine::Create(path, {.backend = Backend::kCpu, .kv_tokens = 64});
  ASSERT_TRUE(judge.ok()) << judge.status();

  const auto outputs = (*engine)->Greedy(
      std::vector<GoldenEngine::GreedyRequest>{{.prompt = prompt, .max_tokens = kTokens}});

  ASSERT_TRUE(outputs.ok()) << outputs.status();
  std::vector<std::int32_t> tokens = prompt;
  tokens.insert(tokens.end(), outputs->at(0).begin(), outputs->at(0).end());
  const int first = static_cast<int>(prompt.size()) - 1;
  const double tolerance = Tolerance(KvDType::kF16, 30);
  const absl::Status status =
      (*judge)->Forced(tokens, first, [&](int position, std::span<const float> logits) {
        if (position + 1 == static_cast<int>(tokens.size())) return;
        const double scale = std::abs(logits[Best(logits)]);
        EXPECT_TRUE(MayBeBest(logits, tokens[position + 1], tolerance * scale))
            << "token " << position - first << ": " << tokens[position + 1] << " instead of "
            << Best(logits);
      });
  ASSERT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace baton::testing
