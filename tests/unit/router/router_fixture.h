#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/router.h"
#include "router/served_model.h"
#include "tests/support/fake_worker.h"
#include "tests/support/http_client.h"
#include "tests/support/test_paths.h"

namespace baton::router {

using baton::testing::FakeHandoff;
using baton::testing::FakeWorker;
using baton::testing::HttpClient;
using baton::testing::HttpResult;
using Json = nlohmann::json;
using session::WorkerRole;

// What fake workers "generate".
inline constexpr char kAnswer[] = "Once upon a time there was a little girl.";

// A real router with the tiny model's tokenizer, and fake workers on real session streams.
class RouterFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto model = ServedModel::Load({ModelPath(), {}, 0, ""});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    script_ = model_->tokenizer->Encode(kAnswer);
    script_.push_back(model_->eos_ids.at(0));
  }
  static std::string ModelPath() { return baton::testing::ModelsDir() + "/tiny/target"; }

  void StartRouter() {
    config_.model = ModelPath();
    config_.served_model_name = {"tiny"};
    config_.host = "127.0.0.1";
    config_.port = config_.grpc_port = config_.session_port = 0;
    config_.heartbeat_interval = absl::Milliseconds(100);
    auto router = Router::Start(config_);
    ASSERT_TRUE(router.ok()) << router.status();
    router_ = *std::move(router);
  }
  std::unique_ptr<FakeWorker> StartWorker(const std::string& id, WorkerRole role) {
    FakeWorker::Options options;
    options.id = id;
    options.role = role;
    options.router_port = router_->session_port();
    options.model_fingerprint = model_->fingerprint;
    options.script = script_;
    options.step = step_;
    return std::make_unique<FakeWorker>(options, handoff_);
  }
  // One router, one prefill and one decode worker, ready.
  void StartCluster() {
    StartRouter();
    prefill_ = StartWorker("p0", WorkerRole::kPrefill);
    decode_ = StartWorker("d0", WorkerRole::kDecode);
    ASSERT_TRUE(WaitFor([this] { return router_->ready(); }));
  }
  void TearDown() override {
    prefill_.reset();
    decode_.reset();
    router_.reset();
  }

  // Waits until `condition` holds; false when it does not within ten seconds.
  static bool WaitFor(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }
  bool WaitForNothingHeld() {
    return WaitFor([this] { return prefill_->num_held() == 0 && decode_->num_held() == 0; });
  }

  HttpResult Do(const std::string& method, const std::string& path, const std::string& body = "",
                const std::string& headers = "") {
    HttpClient client(router_->http_port());
    auto result = client.Do(method, path, body, headers);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : HttpResult{};
  }
  HttpResult Post(const std::string& path, const Json& body, const std::string& headers = "") {
    return Do("POST", path, body.dump(), headers);
  }
  static Json ChatBody(Json more = Json::object()) {
    Json body = {{"model", "tiny"},
                 {"messages", {{{"role", "user"}, {"content", "Tell me a story"}}}}};
    body.update(more);
    return body;
  }
  // The JSON of every event of a stream but [DONE].
  static std::vector<Json> Events(const std::string& stream, bool* done = nullptr) {
    std::vector<Json> events;
    std::size_t at = 0;
    while (at < stream.size()) {
      const std::size_t end = stream.find("\n\n", at);
      EXPECT_NE(end, std::string::npos) << stream;
      if (end == std::string::npos) break;
      const std::string event = stream.substr(at, end - at);
      at = end + 2;
      EXPECT_EQ(event.substr(0, 6), "data: ");
      if (event == "data: [DONE]") {
        if (done != nullptr) *done = at == stream.size();
      } else {
        events.push_back(Json::parse(event.substr(6)));
      }
    }
    return events;
  }

  static std::unique_ptr<const ServedModel> model_;
  static std::vector<std::int32_t> script_;
  RouterConfig config_;
  absl::Duration step_ = absl::Milliseconds(1);
  FakeHandoff handoff_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<FakeWorker> prefill_;
  std::unique_ptr<FakeWorker> decode_;
};
inline std::unique_ptr<const ServedModel> RouterFixture::model_;
inline std::vector<std::int32_t> RouterFixture::script_;

}  // namespace baton::router
