#include "tests/unit/router/router_fixture.h"

// What clients get when something is wrong: with their request, their key, the load or the workers.
namespace baton::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RefusalsTest : public RouterFixture {
 protected:
  static Json ErrorOf(const HttpResult& result) { return Json::parse(result.body)["error"]; }
};

TEST_F(RefusalsTest, IsLiveButNotReadyUntilBothKindsOfWorkerAreThere) {
  StartRouter();
  EXPECT_EQ(Do("GET", "/health").status, 200);
  EXPECT_EQ(Do("GET", "/ready").status, 503);
  const HttpResult none = Post("/v1/chat/completions", ChatBody());
  EXPECT_EQ(none.status, 503);
  EXPECT_GE(std::stoi(none.headers.at("retry-after")), 1);
  EXPECT_THAT(ErrorOf(none)["message"].get<std::string>(), HasSubstr("no decode worker"));

  decode_ = StartWorker("d0", WorkerRole::kDecode);
  ASSERT_TRUE(
      WaitFor([this] { return Json::parse(Do("GET", "/ready").body)["decode_workers"] == 1; }));
  EXPECT_THAT(ErrorOf(Post("/v1/chat/completions", ChatBody()))["message"].get<std::string>(),
              HasSubstr("no prefill worker"));

  prefill_ = StartWorker("p0", WorkerRole::kPrefill);
  ASSERT_TRUE(WaitFor([this] { return Do("GET", "/ready").status == 200; }));
  EXPECT_EQ(Post("/v1/chat/completions", ChatBody()).status, 200);
}

TEST_F(RefusalsTest, AWorkerOfBothRolesIsEnough) {
  StartRouter();
  decode_ = StartWorker("b0", WorkerRole::kBoth);
  ASSERT_TRUE(WaitFor([this] { return router_->ready(); }));

  const Json body = Json::parse(Post("/v1/chat/completions", ChatBody()).body);

  EXPECT_EQ(body["choices"][0]["message"]["content"], kAnswer);
}

TEST_F(RefusalsTest, MistakesAreOpenAisErrorObject) {
  StartCluster();

  const HttpResult result = Post("/v1/chat/completions", ChatBody({{"temperature", "hot"}}));

  EXPECT_EQ(result.status, 400);
  EXPECT_EQ(ErrorOf(result)["type"], "invalid_request_error");
  EXPECT_EQ(ErrorOf(result)["param"], "temperature");
  EXPECT_EQ(Post("/v1/chat/completions", ChatBody({{"model", "gpt-4"}})).status, 404);
  EXPECT_EQ(ErrorOf(Post("/v1/chat/completions", ChatBody({{"model", "gpt-4"}})))["code"],
            "model_not_found");
  EXPECT_EQ(Do("POST", "/v1/completions", "{").status, 400);
}

TEST_F(RefusalsTest, UnknownPathsAndMethodsAreJsonErrors) {
  StartRouter();

  const HttpResult path = Do("GET", "/nothing");
  const HttpResult method = Do("GET", "/v1/chat/completions");

  EXPECT_EQ(path.status, 404);
  EXPECT_THAT(ErrorOf(path)["message"].get<std::string>(), HasSubstr("/nothing"));
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.at("allow"), "POST");
}

TEST_F(RefusalsTest, KeysAreCheckedWhereTheyMatter) {
  config_.api_key = {"first", "second"};
  StartCluster();

  EXPECT_EQ(Post("/v1/chat/completions", ChatBody()).status, 401);
  EXPECT_EQ(Post("/v1/chat/completions", ChatBody(), "Authorization: Bearer wrong\r\n").status,
            401);
  EXPECT_EQ(Post("/v1/chat/completions", ChatBody(), "Authorization: Bearer second\r\n").status,
            200);
  EXPECT_EQ(Do("GET", "/health").status, 200);
  EXPECT_EQ(Do("GET", "/v1/models").status, 401);
}

TEST_F(RefusalsTest, BeyondTheBoundIsTooManyRequests) {
  config_.max_waiting_requests = 2;
  StartCluster();
  prefill_->SetPaused(true);
  HttpClient first(router_->http_port()), second(router_->http_port());
  ASSERT_TRUE(first.Send("POST", "/v1/chat/completions", ChatBody().dump()));
  ASSERT_TRUE(second.Send("POST", "/v1/chat/completions", ChatBody().dump()));
  ASSERT_TRUE(WaitFor([this] { return decode_->num_held() == 2; }));

  const HttpResult third = Post("/v1/chat/completions", ChatBody());

  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.headers.count("retry-after"), 1u);
  EXPECT_EQ(Post("/v1/chat/completions", ChatBody({{"n", 3}})).status, 400);
  prefill_->SetPaused(false);
  EXPECT_EQ(first.ReadResult()->status, 200);
  EXPECT_EQ(second.ReadResult()->status, 200);
}

TEST_F(RefusalsTest, AWorkersRefusalReachesTheClient) {
  StartCluster();
  decode_->RefuseWith(absl::InvalidArgumentError("needs 9000 blocks, has 10"));

  const HttpResult result = Post("/v1/chat/completions", ChatBody());

  EXPECT_EQ(result.status, 400);
  EXPECT_THAT(ErrorOf(result)["message"].get<std::string>(), HasSubstr("9000 blocks"));
}

TEST_F(RefusalsTest, AClientThatGoesAwayFreesTheWorkersInEveryPhase) {
  StartCluster();
  const std::string endless =
      ChatBody({{"stream", true}, {"ignore_eos", true}, {"max_tokens", 400}}).dump();

  decode_->SetPaused(true);  // first token given, nothing decoded
  HttpClient waiting(router_->http_port());
  ASSERT_TRUE(waiting.Send("POST", "/v1/chat/completions", endless));
  ASSERT_TRUE(waiting.ReadUntil("assistant").ok());
  waiting.Close();
  EXPECT_TRUE(WaitForNothingHeld());
  decode_->SetPaused(false);

  prefill_->SetPaused(true);  // prompt given, nothing computed
  HttpClient prefilling(router_->http_port());
  ASSERT_TRUE(prefilling.Send("POST", "/v1/chat/completions", endless));
  ASSERT_TRUE(WaitFor([this] { return prefill_->num_held() == 1; }));
  prefilling.Close();
  EXPECT_TRUE(WaitForNothingHeld());
  prefill_->SetPaused(false);

  HttpClient decoding(router_->http_port());
  ASSERT_TRUE(decoding.Send("POST", "/v1/chat/completions", endless));
  ASSERT_TRUE(decoding.ReadUntil("upon").ok());
  decoding.Close();
  EXPECT_TRUE(WaitForNothingHeld());
  EXPECT_THAT(Do("GET", "/metrics").body,
              HasSubstr("baton_requests_total{code=\"499\",door=\"chat\"} 3"));
}

TEST_F(RefusalsTest, AWorkerLostInMidStreamIsAnErrorEvent) {
  StartCluster();
  HttpClient client(router_->http_port());
  ASSERT_TRUE(client.Send("POST", "/v1/chat/completions",
                          ChatBody({{"stream", true}, {"ignore_eos", true}}).dump()));
  ASSERT_TRUE(client.ReadUntil("upon").ok());

  decode_.reset();

  const auto rest = client.ReadUntil("0\r\n\r\n");
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(*rest, HasSubstr("{\"error\":{\"message\":\"worker d0 was lost"));
  EXPECT_THAT(*rest, Not(HasSubstr("[DONE]")));
  ASSERT_TRUE(WaitFor([this] { return !router_->ready(); }));
  decode_ = StartWorker("d0", WorkerRole::kDecode);
  ASSERT_TRUE(WaitFor([this] { return router_->ready(); }));
  EXPECT_EQ(Post("/v1/chat/completions", ChatBody()).status, 200);
}

TEST_F(RefusalsTest, AWorkerLostBeforeTheFirstTokenIsUnavailable) {
  StartCluster();
  prefill_->SetPaused(true);
  HttpClient client(router_->http_port());
  ASSERT_TRUE(client.Send("POST", "/v1/chat/completions", ChatBody({{"stream", true}}).dump()));
  ASSERT_TRUE(WaitFor([this] { return prefill_->num_held() == 1; }));

  prefill_.reset();

  const auto result = client.ReadResult();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->status, 503);
  EXPECT_THAT(ErrorOf(*result)["message"].get<std::string>(), HasSubstr("worker p0 was lost"));
  EXPECT_TRUE(WaitFor([this] { return decode_->num_held() == 0; }));
}

TEST_F(RefusalsTest, RequestsEndAtTheirTimeout) {
  config_.request_timeout = absl::Milliseconds(300);
  StartCluster();
  prefill_->SetPaused(true);

  const HttpResult result = Post("/v1/chat/completions", ChatBody());

  EXPECT_EQ(result.status, 504);
  EXPECT_TRUE(WaitForNothingHeld());
}

TEST_F(RefusalsTest, AClientThatReadsTooSlowlyIsCutOff) {
  config_.max_unread_bytes = 256 << 10;
  StartCluster();
  // Long answers with many log-probabilities, which nobody reads.
  HttpClient client(router_->http_port());
  ASSERT_TRUE(client.Send("POST", "/v1/chat/completions",
                          ChatBody({{"stream", true},
                                    {"ignore_eos", true},
                                    {"n", 32},
                                    {"logprobs", true},
                                    {"top_logprobs", 20},
                                    {"max_tokens", 400}})
                              .dump()));

  ASSERT_TRUE(WaitFor([this] { return decode_->num_tokens_sent() > 100; }));
  EXPECT_TRUE(WaitForNothingHeld());
  EXPECT_LT(decode_->num_tokens_sent(), 32 * 399);
  const auto stream = client.ReadUntil("0\r\n\r\n");
  ASSERT_TRUE(stream.ok());
  EXPECT_THAT(*stream, HasSubstr("reads too slowly"));
}

TEST_F(RefusalsTest, DrainingFinishesWhatRunsAndTakesNothingNew) {
  StartCluster();
  HttpClient client(router_->http_port());
  ASSERT_TRUE(
      client.Send("POST", "/v1/chat/completions",
                  ChatBody({{"stream", true}, {"ignore_eos", true}, {"max_tokens", 200}}).dump()));
  ASSERT_TRUE(client.ReadUntil("upon").ok());

  EXPECT_TRUE(router_->Drain(absl::Now() + absl::Seconds(10)));

  const auto rest = client.ReadUntil("[DONE]");
  EXPECT_TRUE(rest.ok());
  EXPECT_TRUE(WaitFor([this] { return !router_->ready(); }));
}

TEST_F(RefusalsTest, StoppingEndsOpenStreamsWithAnError) {
  StartCluster();
  HttpClient client(router_->http_port());
  ASSERT_TRUE(client.Send("POST", "/v1/chat/completions",
                          ChatBody({{"stream", true}, {"ignore_eos", true}}).dump()));
  ASSERT_TRUE(client.ReadUntil("upon").ok());

  router_->Stop();

  EXPECT_TRUE(WaitFor([this] { return decode_->num_held() == 0; }));
}

TEST(RouterStartTest, RefusesAModelThatIsNotThere) {
  RouterConfig config;
  config.model = "/nonexistent";

  EXPECT_EQ(Router::Start(config).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace baton::router
