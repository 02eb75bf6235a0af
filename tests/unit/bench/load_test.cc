#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "bench/load/load_runner.h"
#include "bench/load/report.h"
#include "bench/load/workload.h"
#include "common/http/server.h"

namespace baton::bench {
namespace {

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(SummarizeTest, InterpolatesBetweenRanks) {
  const Quantiles q = Summarize({4, 1, 3, 2});

  EXPECT_DOUBLE_EQ(q.mean, 2.5);
  EXPECT_DOUBLE_EQ(q.p50, 2.5);
  EXPECT_NEAR(q.p95, 3.85, 1e-12);
  EXPECT_DOUBLE_EQ(q.max, 4);
}

TEST(WorkloadTest, IsTheSameForTheSameSeed) {
  BenchConfig config;
  config.request_rate = 10;

  const auto first = MakeWorkload(config), second = MakeWorkload(config);

  ASSERT_EQ(first->items.size(), 32u);
  EXPECT_TRUE(first->open_loop);
  for (size_t i = 0; i < first->items.size(); ++i) {
    EXPECT_EQ(first->items[i].tokens, second->items[i].tokens);
    EXPECT_EQ(first->items[i].arrival, second->items[i].arrival);
    EXPECT_EQ(first->items[i].tokens.size(), 128u);
  }
}

TEST(WorkloadTest, ScalesAnAzureTrace) {
  BenchConfig config;
  config.dataset = "trace";
  config.trace_file = WriteFile("azure.csv",
                                "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                "2023-11-16 18:17:03.9799600,4808,10\r\n"
                                "2023-11-16 18:17:05.9799600,100,80\r\n");
  config.length_scale = 0.1;
  config.time_scale = 0.5;

  const auto workload = MakeWorkload(config);

  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->items.size(), 2u);
  EXPECT_EQ(workload->items[0].tokens.size(), 481u);
  EXPECT_EQ(workload->items[0].max_tokens, 1);
  EXPECT_EQ(workload->items[1].max_tokens, 8);
  EXPECT_EQ(workload->items[1].arrival, absl::Seconds(1));
}

TEST(WorkloadTest, KeepsTheSharedPrefixesOfAMooncakeTrace) {
  BenchConfig config;
  config.dataset = "trace";
  config.trace_file = WriteFile(
      "mooncake.jsonl",
      "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [7, 8]}\n"
      "{\"timestamp\": 3000, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [7, "
      "9]}\n");
  config.length_scale = 0.125;

  const auto workload = MakeWorkload(config);

  ASSERT_TRUE(workload.ok()) << workload.status();
  const auto& first = workload->items[0].tokens;
  const auto& second = workload->items[1].tokens;
  ASSERT_EQ(first.size(), 128u);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 64, second.begin()));
  EXPECT_FALSE(std::equal(first.begin() + 64, first.end(), second.begin() + 64));
  EXPECT_EQ(workload->items[1].arrival, absl::Seconds(3));
}

TEST(WorkloadTest, NamesTheMalformedLine) {
  BenchConfig config;
  config.dataset = "trace";
  config.trace_file = WriteFile("bad.jsonl", "{\"timestamp\": 0}\n");

  const auto workload = MakeWorkload(config);

  ASSERT_FALSE(workload.ok());
  EXPECT_THAT(std::string(workload.status().message()), ::testing::HasSubstr("bad.jsonl line 1"));
}

// Streams three tokens, the second 30 ms after the first; every fifth request is refused.
std::unique_ptr<http::Server> StartFakeServer(std::atomic<int>& requests) {
  http::ServerOptions options;
  options.host = "127.0.0.1";
  auto server = http::Server::Start(
      options, [&requests](http::Request request, std::shared_ptr<http::Response> response) {
        if (request.path == "/v1/models") {
          return response->Send(200, {}, R"({"data":[{"id":"fake"}]})");
        }
        if (requests.fetch_add(1) % 5 == 4) return response->Send(429, {}, "{\"error\":{}}");
        response->Start(200, {{"Content-Type", "text/event-stream"}});
        for (const char* text : {"a", "b", "c"}) {
          response->Write(absl::StrCat(R"(data: {"choices":[{"text":")", text, "\"}]}\n\n"));
        }
        response->Write(
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n"
            "data: [DONE]\n\n");
        response->End();
      });
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(LoadTest, CountsTokensFromUsageAndErrorsByKind) {
  std::atomic<int> requests{0};
  const auto server = StartFakeServer(requests);
  BenchConfig config;
  config.url = absl::StrCat("http://127.0.0.1:", server->port());
  config.num_prompts = 20;
  config.concurrency = 4;

  const auto workload = MakeWorkload(config);
  const auto model = OpenAiClient(config).FirstModel();
  const auto results = RunLoad(config, *workload, *model, nullptr);
  const Report report = MakeReport(config, results);

  EXPECT_EQ(*model, "fake");
  EXPECT_EQ(requests, 20);
  EXPECT_EQ(report.completed, 16);
  EXPECT_EQ(report.failed, 4);
  EXPECT_EQ(report.errors.at("http 429"), 4);
  EXPECT_EQ(report.output_tokens, 48);
  EXPECT_EQ(report.prompt_tokens, 112);
  EXPECT_EQ(report.good, 16);
  EXPECT_DOUBLE_EQ(report.good_share, 0.8);
}

// Whatever a server under test sends, the bench reports it and goes on.
TEST(LoadTest, SurvivesAnswersThatAreNotWhatTheyShouldBe) {
  const std::string bodies[] = {
      "data:\n\n",
      "data: \n\n",
      "data: {\n\n",
      "data: []\n\n",
      "data: {\"choices\":[3]}\n\n",
      "data: {\"choices\":{}}\n\n",
      "data: {\"usage\":{\"prompt_tokens\":null}}\n\n",
      "data: {\"usage\":{\"completion_tokens\":\"x\"},\"choices\":[{\"text\":5}]}\n\n",
      "data: {\"error\":1}\n\n",
      "\n\n\n",
      "event: x\n\ndata"};
  std::atomic<size_t> next{0};
  http::ServerOptions options;
  options.host = "127.0.0.1";
  auto server = http::Server::Start(
      options, [&](http::Request request, std::shared_ptr<http::Response> response) {
        if (request.path == "/v1/models") {
          return response->Send(200, {}, R"({"data":[{"id":7}]})");
        }
        response->Send(200, {}, bodies[next++ % std::size(bodies)]);
      });
  ASSERT_TRUE(server.ok()) << server.status();
  BenchConfig config;
  config.url = absl::StrCat("http://127.0.0.1:", (*server)->port());
  OpenAiClient client(config);

  EXPECT_FALSE(client.FirstModel().ok());
  for (size_t i = 0; i < std::size(bodies); ++i) {
    EXPECT_FALSE(client.Run({.text = "x", .max_tokens = 1}, "m").ok()) << bodies[i];
  }
}

TEST(LoadTest, ReportsAServerThatIsNotThere) {
  BenchConfig config;
  config.url = "http://127.0.0.1:1";

  const auto model = OpenAiClient(config).FirstModel();
  const auto result = OpenAiClient(config).Run({.text = "x", .max_tokens = 1}, "m");

  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(result.error, "connection");
}

TEST(ReportTest, TpotCountsFromTheFirstToken) {
  RequestResult result;
  result.sent = absl::FromUnixSeconds(100);
  result.first_token = result.sent + absl::Milliseconds(50);
  result.last_token = result.sent + absl::Milliseconds(150);
  result.ended = result.last_token;
  result.output_tokens = 11;
  result.events = 11;
  BenchConfig config;

  const Report report = MakeReport(config, {result});

  EXPECT_DOUBLE_EQ(report.ttft.p50, 50);
  EXPECT_DOUBLE_EQ(report.tpot.p50, 10);
  EXPECT_DOUBLE_EQ(report.end_to_end.p50, 150);
}

}  // namespace
}  // namespace baton::bench
