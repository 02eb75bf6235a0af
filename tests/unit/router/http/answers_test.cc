#include "tests/unit/router/router_fixture.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AnswersTest : public RouterFixture {
 protected:
  void SetUp() override { StartCluster(); }
  static std::string TextOf(const std::vector<Json>& events, int index = 0) {
    std::string text;
    for (const Json& event : events) {
      for (const Json& choice : event["choices"]) {
        if (choice["index"] != index) continue;
        if (choice.contains("text")) text += choice["text"].get<std::string>();
        if (choice.contains("delta") && choice["delta"].contains("content")) {
          text += choice["delta"]["content"].get<std::string>();
        }
      }
    }
    return text;
  }
};

TEST_F(AnswersTest, AChatIsAnsweredWhole) {
  const HttpResult result = Post("/v1/chat/completions", ChatBody(), "X-Request-Id: abc\r\n");

  ASSERT_EQ(result.status, 200) << result.body;
  EXPECT_EQ(result.headers.at("x-request-id"), "abc");
  const Json body = Json::parse(result.body);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["id"], "chatcmpl-abc");
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["message"]["content"], kAnswer);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["completion_tokens"], script_.size());
  EXPECT_EQ(body["usage"]["total_tokens"],
            body["usage"]["prompt_tokens"].get<int>() + static_cast<int>(script_.size()));
}

TEST_F(AnswersTest, AChatIsStreamed) {
  const HttpResult result =
      Post("/v1/chat/completions",
           ChatBody({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));

  ASSERT_EQ(result.status, 200);
  EXPECT_THAT(result.headers.at("content-type"), HasSubstr("text/event-stream"));
  bool done = false;
  const std::vector<Json> events = Events(result.body, &done);
  EXPECT_TRUE(done);
  EXPECT_EQ(TextOf(events), kAnswer);
  EXPECT_EQ(events.front()["object"], "chat.completion.chunk");
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  const Json& finish = events[events.size() - 2];
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(finish["choices"][0]["delta"].empty());
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], script_.size());
}

TEST_F(AnswersTest, ACompletionIsAnsweredWholeAndStreamed) {
  const Json body = {{"prompt", "Hello"}, {"max_tokens", 6}};
  const Json whole = Json::parse(Post("/v1/completions", body).body);
  EXPECT_EQ(whole["object"], "text_completion");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  const std::string expected = model_->tokenizer->Decode(std::span(script_).first(6), true);
  EXPECT_EQ(whole["choices"][0]["text"], expected);

  Json streamed = body;
  streamed["stream"] = true;
  const HttpResult result = Post("/v1/completions", streamed);

  EXPECT_EQ(TextOf(Events(result.body)), expected);
}

TEST_F(AnswersTest, StopStringsEndTheAnswerAndFreeTheWorker) {
  for (const bool stream : {false, true}) {
    const HttpResult result =
        Post("/v1/chat/completions", ChatBody({{"stop", {"little", "zzz"}}, {"stream", stream}}));

    if (stream) {
      EXPECT_EQ(TextOf(Events(result.body)), "Once upon a time there was a ");
      EXPECT_THAT(result.body, Not(HasSubstr("girl")));
    } else {
      const Json choice = Json::parse(result.body)["choices"][0];
      EXPECT_EQ(choice["message"]["content"], "Once upon a time there was a ");
      EXPECT_EQ(choice["finish_reason"], "stop");
      EXPECT_EQ(choice["stop_reason"], "little");
    }
    EXPECT_TRUE(WaitForNothingHeld());
  }
}

TEST_F(AnswersTest, AnswersWithEveryChoiceOfEveryPrompt) {
  const Json body = Json::parse(
      Post("/v1/completions", {{"prompt", {"a", "b"}}, {"n", 2}, {"max_tokens", 3}}).body);

  ASSERT_EQ(body["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(body["choices"][i]["index"], i);
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
}

TEST_F(AnswersTest, ChatLogprobsHaveOpenAisShape) {
  const Json body =
      Json::parse(Post("/v1/chat/completions",
                       ChatBody({{"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 3}}))
                      .body);

  const Json& content = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["logprob"], -0.25);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
  std::string joined;
  for (const Json& entry : content) {
    joined += entry["token"].get<std::string>();
    EXPECT_EQ(entry["bytes"].size(), entry["token"].get<std::string>().size());
  }
  EXPECT_EQ(joined, body["choices"][0]["message"]["content"]);
}

TEST_F(AnswersTest, StreamedLogprobsAreComplete) {
  const HttpResult result = Post(
      "/v1/chat/completions", ChatBody({{"logprobs", true}, {"stream", true}, {"max_tokens", 8}}));

  int count = 0;
  for (const Json& event : Events(result.body)) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (!logprobs.is_null()) count += static_cast<int>(logprobs["content"].size());
  }
  EXPECT_EQ(count, 8);
}

TEST_F(AnswersTest, EchoedPromptsComeWithTheirLogprobs) {
  const std::string prompt = "There was a girl";
  const Json body =
      Json::parse(Post("/v1/completions",
                       {{"prompt", prompt}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 2}})
                      .body);

  const Json& choice = body["choices"][0];
  EXPECT_THAT(choice["text"].get<std::string>(), ::testing::StartsWith(prompt));
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"].size(), body["usage"]["total_tokens"]);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1], -0.5);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 1u);
}

TEST_F(AnswersTest, AnEchoWithoutOutputScoresThePromptOnly) {
  const Json body = Json::parse(
      Post("/v1/completions",
           {{"prompt", "There was a girl"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}})
          .body);

  EXPECT_EQ(body["choices"][0]["text"], "There was a girl");
  EXPECT_EQ(body["choices"][0]["logprobs"]["tokens"].size(), body["usage"]["prompt_tokens"]);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST_F(AnswersTest, GivesTokenIdsAndPromptLogprobsWhenAskedFor) {
  const Json body = Json::parse(Post("/v1/completions", {{"prompt", Json::array({5, 6, 7})},
                                                         {"return_token_ids", true},
                                                         {"prompt_logprobs", 1},
                                                         {"max_tokens", 4}})
                                    .body);

  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["prompt_token_ids"], (Json{5, 6, 7}));
  EXPECT_EQ(choice["token_ids"], Json(std::vector(script_.begin(), script_.begin() + 4)));
  ASSERT_EQ(choice["prompt_logprobs"].size(), 3u);
  EXPECT_TRUE(choice["prompt_logprobs"][0].is_null());
  EXPECT_EQ(choice["prompt_logprobs"][1]["6"]["rank"], 1);
}

TEST_F(AnswersTest, WorkersSeeTheResolvedParameters) {
  Post("/v1/chat/completions", ChatBody({{"temperature", 0.25},
                                         {"seed", 11},
                                         {"max_tokens", 2},
                                         {"priority", 3},
                                         {"logit_bias", {{"9", 1.5}}}}));

  const session::RequestSpec spec = prefill_->last_spec();
  EXPECT_FLOAT_EQ(spec.sampling.temperature, 0.25f);
  EXPECT_EQ(spec.sampling.seed, 11u);
  EXPECT_EQ(spec.sampling.max_tokens, 2);
  EXPECT_EQ(spec.priority, 3);
  EXPECT_EQ(spec.sampling.logit_bias.size(), 1u);
  EXPECT_THAT(spec.sampling.stop_token_ids, ::testing::Contains(model_->eos_ids[0]));
}

TEST_F(AnswersTest, TokenizesAndDetokenizes) {
  const Json tokens = Json::parse(
      Post("/tokenize", {{"prompt", "Once upon a time"}, {"return_token_strs", true}}).body);
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["token_strs"].size(), tokens["tokens"].size());
  EXPECT_EQ(tokens["max_model_len"], model_->max_context);

  const Json text = Json::parse(Post("/detokenize", {{"tokens", tokens["tokens"]}}).body);

  EXPECT_THAT(text["prompt"].get<std::string>(), HasSubstr("Once upon a time"));
  const Json chat = Json::parse(Post("/tokenize", ChatBody()).body);
  EXPECT_GT(chat["count"], 3);
}

TEST_F(AnswersTest, TheTimelineOfARequestAddsUpToItsLatency) {
  Post("/v1/chat/completions", ChatBody(), "X-Request-Id: timed\r\n");
  Json sequence;
  ASSERT_TRUE(WaitFor([&] {
    const HttpResult result = Do("GET", "/debug/requests/chatcmpl-timed");
    if (result.status != 200) return false;
    sequence = Json::parse(result.body)["sequences"][0];
    return !sequence["transfer"]["layers"].empty();
  }));

  double sum = 0;
  for (const auto& [name, seconds] : sequence["phases"].items()) sum += seconds.get<double>();
  EXPECT_NEAR(sum, sequence["latency_seconds"].get<double>(), 1e-7);
  EXPECT_EQ(sequence["outcome"], "finished");
  EXPECT_EQ(sequence["prefill_worker"], "p0");
  EXPECT_EQ(sequence["decode_worker"], "d0");
  EXPECT_EQ(sequence["transfer"]["bytes"], 4096);
}

TEST_F(AnswersTest, ListsModelsAndMetrics) {
  Post("/v1/chat/completions", ChatBody({{"max_tokens", 2}}));

  const Json models = Json::parse(Do("GET", "/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], model_->max_context);
  EXPECT_EQ(Do("GET", "/v1/models/tiny").status, 200);
  EXPECT_EQ(Do("GET", "/v1/models/other").status, 404);
  const std::string metrics = Do("GET", "/metrics").body;
  for (const char* name :
       {"baton_ttft_seconds_count 1", "baton_tpot_seconds_count 1", "baton_e2e_seconds_count 1",
        "baton_requests_total{code=\"200\",door=\"chat\"} 1", "baton_output_tokens_total 2",
        "baton_phase_seconds_count{phase=\"prefill_compute\"}"}) {
    EXPECT_THAT(metrics, HasSubstr(name));
  }
}

}  // namespace
}  // namespace baton::router
