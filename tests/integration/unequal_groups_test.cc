// Workers of one cluster that cut the KV cache differently hand over to each other, and the tokens
// are those of one process alone.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/support/completions.h"
#include "tests/support/test_paths.h"

namespace baton::testing {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;
using Flags = std::vector<std::string>;

struct Groups {
  const char* name;
  Flags cluster;  // of the first prefill and decode worker
  Flags prefill;  // of those that join
  Flags decode;
};

class UnequalGroupsTest : public ::testing::TestWithParam<Groups> {};

double BytesOf(const LocalCluster& cluster, const std::string& worker, const char* side) {
  return cluster.Metric(worker, absl::StrCat("baton_kv_transfer_bytes_total{side=\"", side, "\"}"));
}

TEST_P(UnequalGroupsTest, GiveTheTokensOfOneProcessAlone) {
  const auto prompts = ReadGoldenPrompts("tiny");
  std::vector<json> options;
  for (size_t i = 0; i < prompts.size(); ++i) {
    options.push_back(i % 2 == 0 ? GreedyOptions(24) : SeededOptions(24, static_cast<int>(i)));
    options.back()["ignore_eos"] = true;
  }
  std::vector<Tokens> alone;
  {
    const auto whole = LocalCluster::Start(TinyModelPath(), {"--role=both"});
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto tokens = Complete(**whole, prompts[i].prompt_ids, options[i]);
      ASSERT_TRUE(tokens.ok()) << tokens.status();
      alone.push_back(*tokens);
    }
  }
  Flags flags = GetParam().cluster;
  flags.push_back("--threads=1");
  const auto cluster = LocalCluster::Start(TinyModelPath(), flags);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_TRUE((*cluster)->Join("prefill", "prefill-x", GetParam().prefill).ok());
  ASSERT_TRUE((*cluster)->Join("decode", "decode-x", GetParam().decode).ok());

  // Until those that joined have taken part; the router may learn of them late.
  for (int round = 0; round < 50; ++round) {
    const auto outputs = CompleteAll(**cluster, prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_TRUE(outputs[i].ok()) << prompts[i].id << ": " << outputs[i].status();
      ASSERT_EQ(*outputs[i], alone[i]) << prompts[i].id;
    }
    if (BytesOf(**cluster, "prefill-x", "send") > 0 &&
        BytesOf(**cluster, "decode-x", "receive") > 0 &&
        BytesOf(**cluster, "prefill-0", "send") > 0 &&
        BytesOf(**cluster, "decode-0", "receive") > 0) {
      break;
    }
  }

  double sent = 0, received = 0;
  for (const char* const id : {"0", "x"}) {
    const double out = BytesOf(**cluster, absl::StrCat("prefill-", id), "send");
    const double in = BytesOf(**cluster, absl::StrCat("decode-", id), "receive");
    EXPECT_GT(out, 0) << id;
    EXPECT_GT(in, 0) << id;
    sent += out;
    received += in;
  }
  EXPECT_EQ(sent, received);
  EXPECT_TRUE(
      BooksAreBalancedAndIdle(**cluster, {"prefill-0", "decode-0", "prefill-x", "decode-x"}));
}

INSTANTIATE_TEST_SUITE_P(
    Groups, UnequalGroupsTest,
    ::testing::Values(
        Groups{"block_sizes",
               {"--block-size=16", "--transport=grpc"},
               {"--block-size=64", "--transport=grpc"},
               {"--block-size=32", "--transport=grpc"}},
        Groups{"block_sizes_shm", {"--block-size=64"}, {"--block-size=8"}, {"--block-size=16"}},
        // The model has 4 KV heads: 2 + 2, 2 + 1 + 1.
        Groups{"ranks", {"--tp=2"}, {"--tp=3"}, {"--tp=1"}},
        // Some heads are held by two ranks.
        Groups{"ranks_and_block_sizes",
               {"--tp=1", "--transport=grpc"},
               {"--tp=6", "--transport=grpc"},
               {"--tp=2", "--block-size=32", "--transport=grpc"}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace baton::testing
