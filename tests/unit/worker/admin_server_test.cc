#include "worker/admin_server.h"

#include <gtest/gtest.h>

#include "tests/support/http_client.h"

namespace baton::worker {
namespace {

class AdminServerTest : public ::testing::Test {
 protected:
  AdminServerTest() : timelines_(8) {
    auto admin = AdminServer::Start({"127.0.0.1", 0}, {.registry = &registry_,
                                                       .timelines = &timelines_,
                                                       .not_ready = [this] { return not_ready_; },
                                                       .state = [] { return "{\"x\": 1}"; }});
    EXPECT_TRUE(admin.ok()) << admin.status();
    admin_ = *std::move(admin);
  }
  testing::HttpResult Get(const std::string& path) {
    testing::HttpClient client(admin_->port());
    const auto result = client.Do("GET", path);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : testing::HttpResult();
  }

  metrics::Registry registry_;
  TimelineStore timelines_;
  std::string not_ready_;
  std::unique_ptr<AdminServer> admin_;
};

TEST_F(AdminServerTest, ServesMetrics) {
  registry_.AddCounter("baton_test_total", "A test.").Add(3);

  const auto result = Get("/metrics");

  EXPECT_EQ(result.status, 200);
  EXPECT_NE(result.body.find("baton_test_total 3"), std::string::npos) << result.body;
}

TEST_F(AdminServerTest, IsHealthyAndReadyOnlyWithoutAReasonAgainstIt) {
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/ready").status, 200);

  not_ready_ = "no router is connected";

  EXPECT_EQ(Get("/health").status, 200);
  const auto result = Get("/ready");
  EXPECT_EQ(result.status, 503);
  EXPECT_EQ(result.body, "no router is connected\n");
}

TEST_F(AdminServerTest, ShowsARequestsTimelineAndTheState) {
  timelines_.Begin("r-1", 5, "queued", absl::Now());

  const auto result = Get("/debug/requests/r-1");

  EXPECT_EQ(result.status, 200);
  EXPECT_NE(result.body.find("\"request_id\": \"r-1\""), std::string::npos) << result.body;
  EXPECT_EQ(Get("/debug/state").body, "{\"x\": 1}");
}

TEST_F(AdminServerTest, AnswersNotFoundForTheRest) {
  EXPECT_EQ(Get("/debug/requests/unknown").status, 404);
  EXPECT_EQ(Get("/").status, 404);
}

}  // namespace
}  // namespace baton::worker
