// What clients see through HTTP on a real cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/completions.h"
#include "tests/support/temp_directory.h"

namespace baton::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// One cluster for all cases of the suite: they only read it.
class DoorsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto started = LocalCluster::Start(TinyModelPath());
    ASSERT_TRUE(started.ok()) << started.status();
    cluster_ = std::move(*started).release();
  }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(cluster_, nullptr); }

  json Post(std::string_view path, const json& body, int expected_status = 200) {
    const auto result = cluster_->Post(path, body);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return json();
    EXPECT_EQ(result->status, expected_status) << result->body;
    return json::parse(result->body, nullptr, false);
  }
  json Get(std::string_view path) {
    const auto result = cluster_->Get(path);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? json::parse(result->body, nullptr, false) : json();
  }
  // The data of each server-sent event of a streaming answer.
  std::vector<std::string> Stream(std::string_view path, json body) {
    body["stream"] = true;
    const auto result = cluster_->Post(path, body);
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<std::string> events;
    if (!result.ok()) return events;
    EXPECT_EQ(result->status, 200) << result->body;
    for (const absl::string_view event : absl::StrSplit(result->body, "\n\n", absl::SkipEmpty())) {
      EXPECT_EQ(event.substr(0, 6), "data: ");
      events.emplace_back(event.substr(6));
    }
    return events;
  }

  static LocalCluster* cluster_;
};
LocalCluster* DoorsTest::cluster_ = nullptr;

const json kMessages = json::array({{{"role", "user"}, {"content", "What is a mountain?"}}});

TEST_F(DoorsTest, StreamsWhatItAnswersWhole) {
  const json body = {{"messages", kMessages}, {"temperature", 0}, {"max_tokens", 24}};
  const json whole = Post("/v1/chat/completions", body);

  json streaming = body;
  streaming["stream_options"] = {{"include_usage", true}};
  const auto events = Stream("/v1/chat/completions", streaming);

  std::string text, finish;
  json usage;
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back(), "[DONE]");
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json event = json::parse(events[i]);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    if (event["choices"].empty()) {
      usage = event["usage"];
      continue;
    }
    const json& choice = event["choices"][0];
    if (choice["delta"].contains("content") && choice["delta"]["content"].is_string()) {
      text += choice["delta"]["content"].get<std::string>();
    }
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
  }
  EXPECT_EQ(text, whole["choices"][0]["message"]["content"]);
  EXPECT_EQ(finish, whole["choices"][0]["finish_reason"]);
  EXPECT_EQ(usage["total_tokens"], whole["usage"]["total_tokens"]);
  EXPECT_GT(text.size(), 10u);
}

TEST_F(DoorsTest, AStopStringEndsTheTextBeforeItself) {
  const json body = {{"messages", kMessages}, {"temperature", 0}, {"max_tokens", 24}};
  const std::string full = Post("/v1/chat/completions", body)["choices"][0]["message"]["content"];
  const std::string stop = full.substr(full.size() / 2, 5);
  json stopped = body;
  stopped["stop"] = stop;

  const json choice = Post("/v1/chat/completions", stopped)["choices"][0];
  std::string streamed;
  for (const auto& event : Stream("/v1/chat/completions", stopped)) {
    if (event == "[DONE]") continue;
    const json delta = json::parse(event)["choices"][0]["delta"];
    if (delta.contains("content") && delta["content"].is_string()) {
      streamed += delta["content"].get<std::string>();
    }
  }

  EXPECT_EQ(choice["message"]["content"], full.substr(0, full.find(stop)));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(streamed, full.substr(0, full.find(stop)));
}

TEST_F(DoorsTest, GivesNChoicesThatASeedRepeats) {
  const json body = {{"prompt", "A mountain is"},
                     {"n", 3},
                     {"seed", 11},
                     {"temperature", 1.0},
                     {"max_tokens", 12}};

  const json first = Post("/v1/completions", body), second = Post("/v1/completions", body);

  ASSERT_EQ(first["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first["choices"][i]["index"], i);
    EXPECT_EQ(first["choices"][i]["text"], second["choices"][i]["text"]);
  }
  EXPECT_NE(first["choices"][0]["text"], first["choices"][1]["text"]);
}

TEST_F(DoorsTest, ReportsLogprobsAndEchoesThePrompt) {
  const json answer = Post("/v1/completions", {{"prompt", "A mountain is"},
                                               {"echo", true},
                                               {"logprobs", 2},
                                               {"temperature", 0},
                                               {"max_tokens", 4}});
  const json& choice = answer["choices"][0];

  EXPECT_THAT(choice["text"].get<std::string>(), ::testing::StartsWith("A mountain is"));
  const json& logprobs = choice["logprobs"];
  const size_t count = answer["usage"]["total_tokens"];
  ASSERT_EQ(logprobs["tokens"].size(), count);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  for (size_t i = 1; i < count; ++i) EXPECT_LE(logprobs["token_logprobs"][i].get<double>(), 0);
}

TEST_F(DoorsTest, TokenizesAndBack) {
  const json tokens = Post("/tokenize", {{"prompt", "A mountain is high."}});
  const json text = Post("/detokenize", {{"tokens", tokens["tokens"]}});

  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(text["prompt"], "A mountain is high.");
  EXPECT_EQ(Post("/detokenize", {{"tokens", {99999999}}}, 400)["error"]["param"], "tokens");
}

TEST_F(DoorsTest, RefusesWithOpenAisErrorObject) {
  const std::string model = Get("/v1/models")["data"][0]["id"];
  struct Case {
    json body;
    int status;
    std::string param;
  };
  const Case cases[] = {
      {{{"model", "nobody"}, {"messages", kMessages}}, 404, "model"},
      {{{"model", model}, {"messages", kMessages}, {"temperature", "hot"}}, 400, "temperature"},
      {{{"model", model}, {"messages", kMessages}, {"top_p", 1.5}}, 400, "top_p"},
      {{{"model", model}, {"messages", kMessages}, {"n", 0}}, 400, "n"},
      {{{"model", model}, {"messages", "hi"}}, 400, "messages"},
      {{{"model", model}}, 400, "messages"},
  };
  for (const Case& c : cases) {
    const json answer = Post("/v1/chat/completions", c.body, c.status);
    EXPECT_EQ(answer["error"]["param"], c.param) << answer;
    EXPECT_TRUE(answer["error"]["message"].is_string());
  }
}

TEST_F(DoorsTest, NamesBothLengthsOfAPromptThatIsTooLong) {
  const json answer =
      Post("/v1/completions", {{"prompt", std::vector<int>(5000, 300)}, {"max_tokens", 4}}, 400);

  EXPECT_THAT(answer["error"]["message"].get<std::string>(), HasSubstr("5000"));
  EXPECT_THAT(answer["error"]["message"].get<std::string>(), HasSubstr("1024"));
}

TEST_F(DoorsTest, PhasesOfATimelineAddUpToTheLatency) {
  const auto result = cluster_->Post(
      "/v1/completions",
      {{"prompt", std::vector<int>(200, 300)}, {"max_tokens", 8}, {"ignore_eos", true}});
  ASSERT_TRUE(result.ok());
  const json timeline = Get("/debug/requests/" + result->headers.at("x-request-id"));
  const json& sequence = timeline["sequences"][0];

  double sum = 0;
  for (const auto& [phase, seconds] : sequence["phases"].items()) {
    EXPECT_GE(seconds.get<double>(), 0) << phase;
    sum += seconds.get<double>();
  }
  EXPECT_NEAR(sum, sequence["latency_seconds"].get<double>(), 1e-6);
  EXPECT_GT(sequence["phases"]["prefill_compute"].get<double>(), 0);
  EXPECT_GT(sequence["phases"]["decode"].get<double>(), 0);
}

// The wire works while the next layer computes: layer k was given to it before layer k + 1 was
// done.
TEST_F(DoorsTest, ALayerIsOnTheWireBeforeTheNextIsComputed) {
  int overlapped = 0, layers_seen = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto result = cluster_->Post(
        "/v1/completions", {{"prompt", std::vector<int>(480, 300 + attempt)}, {"max_tokens", 2}});
    ASSERT_TRUE(result.ok());
    const std::string path = "/debug/requests/" + result->headers.at("x-request-id");
    json layers;
    ASSERT_TRUE(WaitFor([&] {
      layers = Get(path)["sequences"][0]["transfer"]["layers"];
      return layers.is_array() && !layers.empty();
    }));
    for (size_t k = 0; k + 1 < layers.size(); ++k) {
      ++layers_seen;
      EXPECT_GE(layers[k]["sent_seconds"].get<double>(),
                layers[k]["computed_seconds"].get<double>());
      if (layers[k]["sent_seconds"] < layers[k + 1]["computed_seconds"]) ++overlapped;
    }
  }
  // On a busy machine a sending thread may be put off for the length of a layer now and then.
  EXPECT_GT(overlapped, layers_seen / 2) << "of " << layers_seen;
}

// docs/metrics.md lists what the processes export, and nothing else.
TEST_F(DoorsTest, TheMetricsPageIsTrue) {
  std::ifstream file(BATON_SOURCE_DIR "/docs/metrics.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  // Some metrics begin with their first event.
  Post("/v1/completions", {{"prompt", "Hello"}, {"max_tokens", 2}});
  ASSERT_TRUE(WaitFor([] {
    return cluster_->GetFrom("decode-0", "/metrics")->body.find("baton_worker_requests_total") !=
               std::string::npos &&
           cluster_->GetFrom("prefill-0", "/metrics")->body.find("baton_worker_requests_total") !=
               std::string::npos;
  }));
  std::string exported;
  for (const char* process : {"router", "prefill-0", "decode-0"}) {
    exported += cluster_->GetFrom(process, "/metrics")->body;
  }
  int listed = 0;
  for (const absl::string_view line : absl::StrSplit(exported, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() < 3 || words[1] != "HELP") continue;
    EXPECT_NE(page.find("| `" + words[2] + "` |"), std::string::npos)
        << words[2] << " is not listed: run scripts/make_docs.sh";
  }
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (line.substr(0, 3) != "| `") continue;
    ++listed;
    const absl::string_view name = line.substr(3, line.find('`', 3) - 3);
    EXPECT_THAT(exported, HasSubstr(absl::StrCat("# HELP ", name, " ")))
        << "run scripts/make_docs.sh";
  }
  EXPECT_GT(listed, 30);
}

// A cluster with a chat template that prints all it is given.
TEST(ChatTemplateDoorTest, GivesToolsAndVariablesToTheTemplateOfTheOption) {
  const TempDirectory directory;
  const std::string path = directory.Write(
      "chat.jinja",
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
      "{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments.x }})"
      "{% endfor %}{% endfor %}{{ tools | tojson }}{{ '!' if shout }}<|assistant|>");
  const auto cluster = LocalCluster::Start(TinyModelPath(), {"--chat-template=" + path});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto post = [&cluster](std::string_view where, const std::string& body) {
    HttpClient client((*cluster)->http_port(), absl::Seconds(60));  // `json` would sort the keys
    const auto result = client.Do("POST", where, body);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? json::parse(result->body, nullptr, false) : json();
  };
  const std::string chat =
      R"("messages":[{"role":"user","content":[{"type":"text","text":"add"}]},
         {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
          "function":{"name":"f","arguments":"{\"x\": 5}"}}]},
         {"role":"tool","tool_call_id":"1","content":"6"}],
         "tools":[{"type":"function","function":{"name":"f","z":1.0,"a":null}}],
         "chat_template_kwargs":{"shout":true})";

  const json tokens = post("/tokenize", "{" + chat + "}");
  const json prompt = post("/detokenize", json{{"tokens", tokens["tokens"]}}.dump());
  const json answer =
      post("/v1/chat/completions", "{" + chat + R"(,"max_tokens":4,"temperature":0})");
  const json hidden = post("/tokenize", "{" + chat + R"(,"tool_choice":"none"})");
  const json refused = post("/v1/chat/completions", "{" + chat + R"(,"tool_choice":"required"})");

  EXPECT_EQ(prompt["prompt"],
            "<user>add<assistant>f(5)<tool>6"
            R"([{"type": "function", "function": {"name": "f", "z": 1.0, "a": null}}])"
            "!<|assistant|>");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tokens["count"]);
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_LT(hidden["count"], tokens["count"]);
  EXPECT_EQ(refused["error"]["param"], "tool_choice");
}

TEST_F(DoorsTest, TellsLifeAndReadinessAndCountsWhatItServed) {
  EXPECT_EQ(cluster_->Get("/health")->status, 200);
  EXPECT_EQ(cluster_->Get("/ready")->status, 200);
  EXPECT_EQ(cluster_->Get("/nowhere")->status, 404);
  Post("/v1/completions", {{"prompt", "Hello"}, {"max_tokens", 2}});
  EXPECT_THAT(cluster_->Get("/metrics")->body, HasSubstr("baton_ttft_seconds_bucket"));
  EXPECT_GT(cluster_->Metric("decode-0", "baton_steps_total"), 0);
}

}  // namespace
}  // namespace baton::testing
