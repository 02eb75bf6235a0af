#include "worker/worker_service.h"

#include <gtest/gtest.h>

#include "tests/support/fake_router.h"
#include "tests/support/http_client.h"
#include "tests/support/test_paths.h"
#include "tests/unit/worker/scripted_scheduler.h"

namespace baton::worker {
namespace {

session::Prefill TestPrefill() {
  session::Prefill prefill;
  prefill.spec.request_id = "r";
  prefill.spec.prompt = {1};
  prefill.ticket = {1, "d", 1, absl::Seconds(1), "x:1", 1, {0}, {"m", "f", "f", 1, 1, 1, {}}, {16}};
  return prefill;
}

class WorkerServiceTest : public ::testing::Test {
 protected:
  WorkerServiceTest() {
    config_.model = testing::ModelsDir() + "/tiny/draft";
    config_.routers = {router_.address()};
    config_.kv_blocks = 8;
    config_.threads = 1;
    config_.host = "127.0.0.1";
    config_.worker_id = "w-test";
    auto engine = EngineHost::Create(config_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }
  // A worker whose requests "run" as long as the scheduler never plans them to an end.
  std::unique_ptr<WorkerService> MakeService() {
    return std::make_unique<WorkerService>(
        config_, session::WorkerRole::kPrefill,
        MakeWorkerIdentity(config_, session::WorkerRole::kPrefill), *engine_, clock_);
  }

  FakeRouter router_;
  RealClock clock_;
  WorkerConfig config_;
  std::unique_ptr<EngineHost> engine_;
};

// Holds every request until told to end all.
class StuckScheduler final : public Scheduler {
 public:
  void Handle(Event event) override {
    absl::MutexLock lock(&mutex_);
    if (const auto* from_router = std::get_if<RouterEvent>(&event)) {
      if (std::holds_alternative<session::Prefill>(from_router->message)) ++held_;
    }
    if (std::holds_alternative<EndAll>(event)) held_ = 0;
    if (std::holds_alternative<DrainStarted>(event)) draining_ = true;
  }
  void Tick() override {}
  absl::Time NextDeadline() const override { return absl::InfiniteFuture(); }
  std::span<const engine::SequenceStep> PlanStep() override { return {}; }
  bool watches_layers() const override { return false; }
  void OnLayer(int) override {}
  void OnLogits(int, int, std::span<float>) override {}
  void OnToken(int, SampledToken) override {}
  void FinishStep(const absl::Status&) override {}
  session::WorkerLoad Load() const override {
    absl::MutexLock lock(&mutex_);
    session::WorkerLoad load;
    load.running = held_;
    load.draining = draining_;
    return load;
  }
  bool idle() const override {
    absl::MutexLock lock(&mutex_);
    return held_ == 0;
  }

 private:
  mutable absl::Mutex mutex_;
  int held_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(WorkerServiceTest, RegistersSayingWhatItIsAndBecomesReady) {
  StuckScheduler scheduler;
  auto service = MakeService();
  EXPECT_FALSE(service->ready());

  ASSERT_TRUE(service->Start(scheduler).ok());

  ASSERT_TRUE(router_.Wait([&](const auto& seen) {
    return seen.hellos.size() == 1 && seen.hellos[0].worker_id == "w-test" &&
           seen.hellos[0].fingerprint == engine_->fingerprint() &&
           seen.hellos[0].admin_address == absl::StrCat("127.0.0.1:", service->admin_port());
  }));
  ASSERT_TRUE(router_.Wait([](const auto& seen) { return seen.load.blocks.total == 0; }));
  testing::HttpClient client(service->admin_port());
  EXPECT_EQ(client.Do("GET", "/health")->status, 200);
  const auto state = client.Do("GET", "/debug/state");
  EXPECT_NE(state->body.find("\"worker_id\": \"w-test\""), std::string::npos) << state->body;
}

TEST_F(WorkerServiceTest, ADrainTellsRoutersAndWaitsForWhatRuns) {
  StuckScheduler scheduler;
  auto service = MakeService();
  ASSERT_TRUE(service->Start(scheduler).ok());
  ASSERT_TRUE(router_.Wait([](const auto& seen) { return seen.hellos.size() == 1; }));

  EXPECT_TRUE(service->Drain(absl::Now() + absl::Seconds(20)));

  EXPECT_TRUE(router_.Wait([](const auto& seen) { return seen.load.draining; }));
  EXPECT_FALSE(service->ready());
}

TEST_F(WorkerServiceTest, ADrainThatRunsOutOfTimeEndsTheRest) {
  StuckScheduler scheduler;
  auto service = MakeService();
  ASSERT_TRUE(service->Start(scheduler).ok());
  ASSERT_TRUE(router_.Wait([](const auto& seen) { return seen.hellos.size() == 1; }));
  router_.Send(TestPrefill());
  ASSERT_TRUE(router_.Wait([](const auto& seen) { return seen.load.running == 1; }));

  EXPECT_FALSE(service->Drain(absl::Now() + absl::Milliseconds(20)));

  EXPECT_TRUE(scheduler.idle());
}

TEST(WorkerIdentityTest, NamesRoleHostAndProcessAndDiffersPerStart) {
  const WorkerConfig config;

  const WorkerIdentity one = MakeWorkerIdentity(config, session::WorkerRole::kDecode);
  const WorkerIdentity two = MakeWorkerIdentity(config, session::WorkerRole::kDecode);

  EXPECT_EQ(one.worker_id.rfind("decode-", 0), 0u) << one.worker_id;
  EXPECT_NE(one.incarnation, two.incarnation);
}

}  // namespace
}  // namespace baton::worker
