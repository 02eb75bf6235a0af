// Phi-3's longrope, for which there are no golden outputs: the tiny Phi-3 with rope factors given
// to it, against the definition in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "engine/model_runner.h"
#include "nlohmann/json.hpp"
#include "tests/support/double_model.h"
#include "tests/support/engine_setups.h"
#include "tests/support/gguf_converter.h"
#include "tests/support/golden_engine.h"
#include "tests/support/temp_directory.h"

namespace baton::testing {
namespace {

using engine::LogitRows;
using engine::SequenceStep;
using nlohmann::json;

constexpr int kOriginal = 64, kContext = 512, kHeadDim = 16;
constexpr double kTheta = 10000.0;

const std::vector<double>& Factors(bool is_long) {
  static const std::vector<double> short_factors = {1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.6, 1.75};
  static const std::vector<double> long_factors = {1.0, 1.3, 2.1, 4.0, 9.5, 17.0, 30.0, 44.0};
  return is_long ? long_factors : short_factors;
}

enum class Style { kOldConfig, kNewConfig, kGguf };

// As published models of transformers 4 state it, or as transformers 5 writes it.
void StateLongRope(Style style, json& config) {
  config["max_position_embeddings"] = kContext;
  json rope = {{"short_factor", Factors(false)}, {"long_factor", Factors(true)}};
  if (style == Style::kNewConfig) {
    rope["rope_type"] = "longrope";
    rope["rope_theta"] = kTheta;
    rope["original_max_position_embeddings"] = kOriginal;
    config.erase("rope_scaling");
    config.erase("rope_theta");
    config["rope_parameters"] = rope;
  } else {
    rope["type"] = "longrope";
    config["rope_scaling"] = rope;
  }
  config["original_max_position_embeddings"] = kOriginal;
}

struct Case {
  Style style;
  EngineSetup setup;
};
std::string CaseName(const Case& tested) {
  const char* style = tested.style == Style::kOldConfig   ? "OldConfig_"
                      : tested.style == Style::kNewConfig ? "NewConfig_"
                                                          : "Gguf_";
  return style + SetupName(tested.setup);
}
void PrintTo(const Case& tested, std::ostream* out) { *out << CaseName(tested); }

class LongRopeTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::filesystem::path source = BATON_SOURCE_DIR "/tests/golden/arch/phi3";
    std::ifstream stream(source / "config.json");
    json config = json::parse(stream);
    StateLongRope(GetParam().style, config);
    temp_.Write("model/config.json", config.dump());
    std::string path = temp_.path() + "/model";
    std::filesystem::create_symlink(source / "model.safetensors", path + "/model.safetensors");
    if (GetParam().style == Style::kGguf) {
      const auto gguf = ConvertToGguf(path, {});
      ASSERT_TRUE(gguf.ok()) << gguf.status();
      path = temp_.Write("model.gguf", gguf->Build());
    }
    auto checkpoint = checkpoint::Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
    auto engine = GoldenEngine::Create(checkpoint_, GetParam().setup);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  static std::vector<std::int32_t> Tokens(int count) {
    std::mt19937 random(9);
    std::vector<std::int32_t> tokens(count);
    for (auto& token : tokens) token = static_cast<std::int32_t>(3 + random() % 509);
    return tokens;
  }

  // Logits after each token: the first `prompt_length` computed in steps of `chunk`, the others one
  // by one.
  std::vector<std::vector<float>> Compute(const std::vector<std::int32_t>& tokens,
                                          int prompt_length, int chunk) {
    std::vector<std::vector<float>> rows;
    const int length = static_cast<int>(tokens.size());
    auto blocks = engine_->allocator().Allocate(engine_->kv().layout().BlocksFor(length));
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    for (int start = 0; blocks.ok() && start < length;) {
      const int count = start < prompt_length ? std::min(chunk, prompt_length - start) : 1;
      const SequenceStep step{.tokens = std::span(tokens).subspan(start, count),
                              .start_position = start,
                              .block_table = blocks->ids(),
                              .logits = LogitRows::kAll,
                              .prompt_length = prompt_length};
      const absl::Status status = engine_->runner().Step(
          {&step, 1}, engine_->kv(), {.on_logits = [&](int, int, std::span<float> logits) {
            rows.emplace_back(logits.begin(), logits.end());
          }});
      EXPECT_TRUE(status.ok()) << status;
      start += count;
    }
    return rows;
  }

  // What transformers computes: a pass over the prompt, whose length chooses the factors of all its
  // rows, then a pass for each further token, whose position does.
  double HighestError(const std::vector<std::int32_t>& tokens, int prompt_length,
                      const std::vector<std::vector<float>>& logits) {
    const double magnitude =
        std::sqrt(1 + std::log(1.0 * kContext / kOriginal) / std::log(1.0 * kOriginal));
    const auto turn = [&](int /*rope*/, int position, int pair) {
      const bool is_long = std::max(prompt_length, position + 1) > kOriginal;
      const double angle =
          position / (Factors(is_long)[pair] * std::pow(kTheta, 2.0 * pair / kHeadDim));
      return Turn{magnitude * std::cos(angle), magnitude * std::sin(angle)};
    };
    const auto expected = DoubleForward(*checkpoint_, engine_->runner().plan(), tokens, turn);
    if (expected.size() != logits.size()) return HUGE_VAL;
    double highest = 0;
    for (std::size_t row = 0; row < expected.size(); ++row) {
      for (std::size_t i = 0; i < expected[row].size(); ++i) {
        highest = std::max(highest, std::abs(logits[row][i] - expected[row][i]));
      }
    }
    return highest;
  }

  TempDirectory temp_;
  std::shared_ptr<const checkpoint::Checkpoint> checkpoint_;
  std::unique_ptr<GoldenEngine> engine_;
};

TEST_P(LongRopeTest, PromptsUpToTheOriginalContextTakeTheShortFactors) {
  const auto tokens = Tokens(kOriginal);

  const auto logits = Compute(tokens, kOriginal, /*chunk=*/kOriginal);

  EXPECT_LE(HighestError(tokens, kOriginal, logits), 1e-3);
}

TEST_P(LongRopeTest, LongerPromptsTakeTheLongFactorsFromTheirFirstTokenOn) {
  const auto tokens = Tokens(kOriginal + 36);

  const auto logits = Compute(tokens, kOriginal + 36, kOriginal + 36);
  const auto in_chunks = Compute(tokens, kOriginal + 36, /*chunk=*/7);

  EXPECT_LE(HighestError(tokens, kOriginal + 36, logits), 1e-3);
  EXPECT_EQ(in_chunks, logits);
}

TEST_P(LongRopeTest, OutputsThatPassTheOriginalContextSwitchThere) {
  const auto tokens = Tokens(kOriginal + 6);

  const auto logits = Compute(tokens, kOriginal - 5, /*chunk=*/kOriginal);

  EXPECT_LE(HighestError(tokens, kOriginal - 5, logits), 1e-3);
  // The rows above tell the two sets of factors apart.
  EXPECT_GT(HighestError(tokens, kOriginal + 6, logits), 0.1);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Style style : {Style::kOldConfig, Style::kNewConfig, Style::kGguf}) {
    for (const EngineSetup& setup : F32Setups()) cases.push_back({style, setup});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, LongRopeTest, ::testing::ValuesIn(Cases()),
                         [](const auto& tested) { return CaseName(tested.param); });

}  // namespace
}  // namespace baton::testing
