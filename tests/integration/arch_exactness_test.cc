// Every model of tests/golden/arch through real clusters: whole and split, alone and together, with
// enough blocks and with too few, the tokens are the golden ones; only what later rows see through
// their layers' windows crosses between workers.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "common/transfer_ticket.h"
#include "tests/support/completions.h"
#include "tests/support/golden_arch.h"
#include "tests/support/temp_directory.h"

namespace baton::testing {

static void PrintTo(const ArchModel& model, std::ostream* out) { *out << model.name; }

namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

constexpr int kBlockSize = 16;
constexpr int kMaxTokens = 32;
// Two of each of the three prompts do not fit with their outputs.
constexpr char kFewBlocks[] = "--kv-blocks=20";

std::string ArchFolder() {
  const char* const folder = std::getenv("BATON_GOLDEN_DIR");
  return absl::StrCat(folder == nullptr ? BATON_SOURCE_DIR "/tests/golden" : folder, "/arch");
}

std::vector<ArchModel> ArchModels() {
  auto models = FindArchModels(ArchFolder());
  return models.ok() ? *std::move(models) : std::vector<ArchModel>();
}

// The models have no tokenizer, and a router needs one: a token per byte, and nameless ones.
void WriteTokenizer(const std::string& directory, int vocab_size) {
  json vocab = json::object();
  int next = 256;  // the characters that stand for bytes that are none of their own, as GPT-2's
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const int code = printable ? byte : next++;
    const std::string text = code < 0x80 ? std::string(1, static_cast<char>(code))
                                         : std::string{static_cast<char>(0xc0 | code >> 6),
                                                       static_cast<char>(0x80 | (code & 0x3f))};
    vocab[text] = byte;
  }
  for (int id = 256; id < vocab_size; ++id) vocab[absl::StrCat("<", id, ">")] = id;
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
  std::ofstream(directory + "/tokenizer.json") << tokenizer;
}

// The prompts of a model, each once greedy and once with a seed.
struct Requests {
  std::vector<GoldenPrompt> prompts;
  std::vector<json> options;
};

Requests MakeRequests(const ArchModel& model, int max_context) {
  Requests requests;
  for (std::size_t i = 0; i < model.prompts.size(); ++i) {
    const int room = max_context - static_cast<int>(model.prompts[i].input_ids.size());
    const int max_tokens = std::min(kMaxTokens, room);
    for (const bool greedy : {true, false}) {
      requests.prompts.push_back({absl::StrCat(i, greedy ? " greedy" : " seeded"),
                                  model.prompts[i].input_ids,
                                  greedy ? model.prompts[i].greedy_ids : Tokens(),
                                  {}});
      requests.options.push_back(greedy ? GreedyOptions(max_tokens)
                                        : SeededOptions(max_tokens, 7 + static_cast<int>(i)));
      requests.options.back()["ignore_eos"] = true;
    }
  }
  return requests;
}

class ArchExactnessTest : public ::testing::TestWithParam<ArchModel> {
 protected:
  void SetUp() override {
    directory_ = LinkArchModel(GetParam(), temp_);
    const auto checkpoint = checkpoint::Checkpoint::Open(directory_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    metadata_ = (*checkpoint)->metadata();
    WriteTokenizer(directory_, metadata_.vocab_size);
    requests_ = MakeRequests(GetParam(), metadata_.max_context);
  }

  std::unique_ptr<LocalCluster> Start(std::vector<std::string> flags) const {
    flags.insert(flags.end(), {absl::StrCat("--block-size=", kBlockSize), "--threads=1"});
    auto cluster = LocalCluster::Start(directory_, flags);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    return cluster.ok() ? *std::move(cluster) : nullptr;
  }

  // The answers one after the other.
  std::vector<Tokens> Alone(const LocalCluster& cluster) const {
    std::vector<Tokens> answers;
    for (std::size_t i = 0; i < requests_.prompts.size(); ++i) {
      const auto tokens = Complete(cluster, requests_.prompts[i].prompt_ids, requests_.options[i]);
      EXPECT_TRUE(tokens.ok()) << requests_.prompts[i].id << ": " << tokens.status();
      answers.push_back(tokens.value_or(Tokens()));
    }
    return answers;
  }

  // Sends all at once and expects `answers`.
  void ExpectTogether(const LocalCluster& cluster, const std::vector<Tokens>& answers) const {
    const auto outputs = CompleteAll(cluster, requests_.prompts, requests_.options);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::string& id = requests_.prompts[i].id;
      ASSERT_TRUE(outputs[i].ok()) << id << ": " << outputs[i].status();
      EXPECT_EQ(*outputs[i], answers[i]) << id;
    }
  }

  ModelFingerprint Fingerprint() const {
    ModelFingerprint fingerprint;
    fingerprint.num_layers = metadata_.num_layers;
    for (const bool windowed : metadata_.windowed_layers) {
      fingerprint.windows.push_back(windowed ? metadata_.sliding_window : 0);
    }
    return fingerprint;
  }

  // (layer, block) pairs that all prompts have, or of which a later row sees something.
  int NumPairs(bool visible_only) const {
    int num_pairs = 0;
    for (const GoldenPrompt& prompt : requests_.prompts) {
      const int num_tokens = static_cast<int>(prompt.prompt_ids.size());
      for (int layer = 0; layer < metadata_.num_layers; ++layer) {
        num_pairs += (num_tokens + kBlockSize - 1) / kBlockSize;
        if (visible_only)
          num_pairs -= Fingerprint().FirstVisibleToken(layer, num_tokens) / kBlockSize;
      }
    }
    return num_pairs;
  }

  void ExpectMoved(const LocalCluster& cluster, int element_bytes) const {
    const double block_bytes =
        2.0 * metadata_.num_kv_heads * kBlockSize * metadata_.head_dim * element_bytes;
    const double bytes = NumPairs(/*visible_only=*/true) * block_bytes;
    EXPECT_EQ(cluster.Metric("prefill-0", "baton_kv_transfer_bytes_total{side=\"send\"}"), bytes);
    EXPECT_EQ(cluster.Metric("decode-0", "baton_kv_transfer_bytes_total{side=\"receive\"}"), bytes);
    EXPECT_EQ(
        cluster.Metric("decode-0", "baton_kv_transfer_refused_blocks_total{side=\"receive\"}"), 0);
    if (!metadata_.windowed_layers.empty()) {
      EXPECT_LT(bytes, NumPairs(/*visible_only=*/false) * block_bytes);
    }
  }

  const TempDirectory temp_;
  std::string directory_;
  checkpoint::ModelMetadata metadata_;
  Requests requests_;
};

TEST_P(ArchExactnessTest, GivesItsGoldenTokensWholeAndSplit) {
  std::vector<Tokens> alone;
  {
    const auto whole = Start({"--role=both", "--compute=f32"});
    ASSERT_NE(whole, nullptr);
    alone = Alone(*whole);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      const GoldenPrompt& prompt = requests_.prompts[i];
      EXPECT_EQ(alone[i].size(), requests_.options[i].at("max_tokens")) << prompt.id;
      if (!prompt.output_ids.empty()) {
        EXPECT_EQ(alone[i], prompt.output_ids) << prompt.id;
      }
    }
    ExpectTogether(*whole, alone);
    EXPECT_TRUE(BooksAreBalancedAndIdle(*whole, {"decode-0"}));
  }
  const char* const transport =
      GetParam().name == "gemma3_text" ? "--transport=grpc" : "--transport=shm";
  const auto split = Start({"--compute=f32", transport, "--max-num-batched-tokens=48"});
  ASSERT_NE(split, nullptr);
  ExpectTogether(*split, alone);
  EXPECT_TRUE(BooksAreBalancedAndIdle(*split, {"prefill-0", "decode-0"}));
  ExpectMoved(*split, /*element_bytes=*/4);
}

TEST_P(ArchExactnessTest, GivesTheSameTokensWholeAndSplitInTheUsualArithmetic) {
  std::vector<Tokens> alone;
  {
    const auto whole = Start({"--role=both"});
    ASSERT_NE(whole, nullptr);
    alone = Alone(*whole);
  }
  const auto split = Start({kFewBlocks});
  ASSERT_NE(split, nullptr);
  ExpectTogether(*split, alone);
  EXPECT_TRUE(BooksAreBalancedAndIdle(*split, {"prefill-0", "decode-0"}));
  ExpectMoved(*split, /*element_bytes=*/2);
}

// Blocks run out while decoding: what is computed again is what was there, also of texts whose rope
// depends on their length and in windows whose front was given back.
class ArchPreemptionTest : public ArchExactnessTest {};

TEST_P(ArchPreemptionTest, GivesTheSameTokensWhenPreempted) {
  std::vector<Tokens> alone;
  {
    const auto whole = Start({"--role=both"});
    ASSERT_NE(whole, nullptr);
    alone = Alone(*whole);
  }
  const auto tight = Start({"--role=both", kFewBlocks});
  ASSERT_NE(tight, nullptr);
  // Answers take milliseconds, so that all of a round may happen to come one after the other.
  const auto preempted = [&] {
    return tight->Metric("decode-0", "baton_decode_preemptions_total") > 0;
  };
  const int num_rounds = Fingerprint().WidestWindow() == 0 ? 100 : 1;
  for (int round = 0; round < num_rounds && !preempted() && !HasFailure(); ++round) {
    ExpectTogether(*tight, alone);
  }
  EXPECT_TRUE(preempted() || num_rounds == 1);
  EXPECT_TRUE(BooksAreBalancedAndIdle(*tight, {"decode-0"}));
}

// A stream ends when its decode worker dies, and the one that takes its place serves as before.
class ArchFaultsTest : public ArchExactnessTest {};

TEST_P(ArchFaultsTest, GivesItsGoldenTokensAgainAfterADecodeWorkersDeath) {
  const auto cluster = Start({"--compute=f32"});
  ASSERT_NE(cluster, nullptr);
  const pid_t pid = cluster->Pid("decode-0");
  HttpClient client(cluster->http_port(), absl::Seconds(60));
  json body = GreedyOptions(400);
  body["prompt"] = GetParam().prompts.back().input_ids;
  body["ignore_eos"] = true;
  body["stream"] = true;
  ASSERT_TRUE(client.Send("POST", "/v1/completions", body.dump()));
  ASSERT_TRUE(client.ReadUntil("\n\n").ok());

  ASSERT_EQ(kill(pid, SIGKILL), 0);

  const auto rest = client.ReadUntil("0\r\n\r\n");
  ASSERT_TRUE(rest.ok()) << "the stream hung: " << rest.status();
  EXPECT_TRUE(rest->find("\"error\"") != std::string::npos ||
              rest->find("[DONE]") != std::string::npos)
      << *rest;
  ASSERT_TRUE(WaitFor([&] {
    const pid_t now = cluster->Pid("decode-0");
    const auto ready = cluster->Get("/ready");
    return now != 0 && now != pid && ready.ok() && ready->status == 200;
  }));
  for (std::size_t i = 0; i < requests_.prompts.size(); ++i) {
    const GoldenPrompt& prompt = requests_.prompts[i];
    if (prompt.output_ids.empty()) continue;
    const auto tokens = Complete(*cluster, prompt.prompt_ids, requests_.options[i]);
    ASSERT_TRUE(tokens.ok()) << prompt.id << ": " << tokens.status();
    EXPECT_EQ(*tokens, prompt.output_ids) << prompt.id;
  }
  EXPECT_TRUE(BooksAreBalancedAndIdle(*cluster, {"prefill-0", "decode-0"}));
}

std::string TestName(const ::testing::TestParamInfo<ArchModel>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

std::vector<ArchModel> Among(const std::vector<std::string>& names) {
  std::vector<ArchModel> models = ArchModels();
  std::erase_if(models, [&](const ArchModel& model) {
    return std::find(names.begin(), names.end(), model.name) == names.end();
  });
  return models;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ArchPreemptionTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ArchFaultsTest);
INSTANTIATE_TEST_SUITE_P(Models, ArchExactnessTest, ::testing::ValuesIn(ArchModels()), TestName);
INSTANTIATE_TEST_SUITE_P(Models, ArchPreemptionTest,
                         ::testing::ValuesIn(Among({"gemma2", "gemma3_text", "mistral",
                                                    "llama31/variants/dynamic"})),
                         TestName);
INSTANTIATE_TEST_SUITE_P(Models, ArchFaultsTest, ::testing::ValuesIn(Among({"gemma3_text"})),
                         TestName);

TEST(ArchModelsTest, AreThere) { EXPECT_FALSE(ArchModels().empty()) << ArchFolder(); }

}  // namespace
}  // namespace baton::testing
