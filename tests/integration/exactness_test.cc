// One request, one answer: the tokens of a request are the same, bit for bit, however the cluster
// is cut and whatever else it computes.
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_join.h"
#include "tests/support/completions.h"
#include "tests/support/test_paths.h"

namespace baton::testing {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

struct ClusterSetup {
  const char* name;
  std::vector<std::string> flags;
};

// Every cluster that must give the answers of the first.
const std::vector<ClusterSetup>& ClusterSetups() {
  static const std::vector<ClusterSetup> setups = {
      {"both", {"--role=both"}},
      {"1P1D_shm", {"--transport=shm"}},
      {"1P1D_grpc", {"--transport=grpc", "--kv-checksum"}},
      {"2P2D_auto", {"--prefill=2", "--decode=2"}},
      {"2P2D_grpc", {"--prefill=2", "--decode=2", "--transport=grpc"}},
      {"chunks_of_7", {"--max-num-batched-tokens=7"}},
      // So few blocks that running sequences are preempted: one long prompt fills the pool.
      {"preempting", {"--role=both", "--kv-blocks=66", "--max-num-seqs=32"}},
  };
  return setups;
}

std::vector<json> Options(size_t num_prompts) {
  std::vector<json> options;
  for (size_t i = 0; i < num_prompts; ++i) {
    options.push_back(i % 2 == 0 ? GreedyOptions(64) : SeededOptions(64, static_cast<int>(i)));
    options.back()["ignore_eos"] = true;  // long outputs: blocks run out where there are few
  }
  return options;
}

// The golden prompts answered one after the other by one process.
const std::vector<Tokens>& Alone(const std::vector<GoldenPrompt>& prompts,
                                 const std::vector<json>& options) {
  static const std::vector<Tokens> answers = [&] {
    std::vector<Tokens> result;
    const auto cluster = LocalCluster::Start(TinyModelPath(), {"--role=both"});
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto tokens = Complete(**cluster, prompts[i].prompt_ids, options[i]);
      EXPECT_TRUE(tokens.ok()) << tokens.status();
      result.push_back(tokens.ok() ? *tokens : Tokens());
    }
    return result;
  }();
  return answers;
}

TEST(ExactnessTest, EveryClusterGivesTheTokensOfOneRequestAlone) {
  const auto prompts = ReadGoldenPrompts("tiny");
  ASSERT_GE(prompts.size(), 5u);
  const auto options = Options(prompts.size());
  const auto& alone = Alone(prompts, options);
  for (const ClusterSetup& setup : ClusterSetups()) {
    SCOPED_TRACE(setup.name);
    const auto cluster = LocalCluster::Start(TinyModelPath(), setup.flags);
    ASSERT_TRUE(cluster.ok()) << cluster.status();

    const auto outputs = CompleteAll(**cluster, prompts, options);

    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_TRUE(outputs[i].ok()) << prompts[i].id << ": " << outputs[i].status();
      EXPECT_EQ(*outputs[i], alone[i]) << prompts[i].id;
    }
    if (std::string(setup.name) == "preempting") {
      EXPECT_GT((*cluster)->Metric("decode-0", "baton_decode_preemptions_total"), 0);
    }
  }
}

// In f32 arithmetic the tokens are those of the reference implementation, up to the first step that
// is decided by less than rounding (tests/golden/README.md).
void ExpectGoldenTokens(const std::string& set, const std::string& model, size_t num_prompts) {
  auto prompts = ReadGoldenPrompts(set);
  ASSERT_FALSE(prompts.empty());
  if (prompts.size() > num_prompts) prompts.resize(num_prompts);
  const auto cluster = LocalCluster::Start(model, {"--compute=f32"});
  ASSERT_TRUE(cluster.ok()) << cluster.status();

  const auto outputs = CompleteAll(**cluster, prompts, {GreedyOptions(64)});

  for (size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_TRUE(outputs[i].ok()) << prompts[i].id << ": " << outputs[i].status();
    const GoldenPrompt& golden = prompts[i];
    for (size_t step = 0; step < golden.output_ids.size(); ++step) {
      if (golden.margin[step] <= 0.02) break;
      ASSERT_LT(step, outputs[i]->size()) << golden.id << " ended early";
      ASSERT_EQ((*outputs[i])[step], golden.output_ids[step]) << golden.id << " step " << step;
    }
  }
}

TEST(ExactnessTest, TheTinyModelGivesItsGoldenTokensThroughTheCluster) {
  ExpectGoldenTokens("tiny", TinyModelPath(), 1000);
}

TEST(ExactnessTest, SmolLm2GivesItsGoldenTokensThroughTheCluster) {
  if (SmolLm2Path().empty()) GTEST_SKIP() << "SmolLM2 is not here; scripts/ has the download";
  ExpectGoldenTokens("smollm2", SmolLm2Path(), 8);
}

TEST(ExactnessTest, SmolLm2GivesTheSameTokensSplitAndWhole) {
  if (SmolLm2Path().empty()) GTEST_SKIP() << "SmolLM2 is not here; scripts/ has the download";
  const auto prompts = ReadGoldenPrompts("smollm2");
  const auto options = Options(prompts.size());
  std::map<std::string, std::vector<absl::StatusOr<Tokens>>> outputs;
  for (const auto& flags : std::vector<std::vector<std::string>>{
           {"--role=both", "--max-num-batched-tokens=96"}, {}, {"--prefill=2", "--decode=2"}}) {
    const auto cluster = LocalCluster::Start(SmolLm2Path(), flags);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    outputs[absl::StrJoin(flags, " ")] = CompleteAll(**cluster, prompts, options);
  }
  const auto& first = outputs.begin()->second;
  for (const auto& [flags, answers] : outputs) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_TRUE(answers[i].ok()) << flags << " " << prompts[i].id << ": " << answers[i].status();
      EXPECT_EQ(*answers[i], *first[i]) << flags << " " << prompts[i].id;
    }
  }
}

}  // namespace
}  // namespace baton::testing
