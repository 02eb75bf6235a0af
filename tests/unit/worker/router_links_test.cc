#include "worker/router_links.h"

#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "tests/support/fake_router.h"
#include "tests/unit/worker/scripted_scheduler.h"

namespace baton::worker {
namespace {

session::Hello TestHello() {
  session::Hello hello;
  hello.worker_id = "w";
  hello.fingerprint = {"m", "fast", "f16", 1, 1, 1, {}};
  hello.cut = {.block_size = 16};
  hello.vocab_size = hello.max_context = hello.max_sequences = hello.num_blocks = 1;
  return hello;
}

session::Prefill TestPrefill(const std::string& id) {
  session::Prefill prefill;
  prefill.spec.request_id = id;
  prefill.spec.prompt = {1};
  prefill.ticket = {1, "d", 1, absl::Seconds(1), "x:1", 1, {0}, {"m", "f", "f", 1, 1, 1, {}}, {16}};
  return prefill;
}

// Waits in its first step until told to go on.
class HeldRunner final : public StepRunner {
 public:
  absl::Status Step(std::span<const engine::SequenceStep>, const engine::StepHooks&) override {
    if (!entered_.HasBeenNotified()) {
      entered_.Notify();
      release_.WaitForNotification();
    }
    return absl::OkStatus();
  }
  absl::Notification entered_, release_;
};

class RouterLinksTest : public ::testing::Test {
 protected:
  RouterLinksTest()
      : metrics_(registry_),
        loop_({.queue_capacity = 8}, runner_, metrics_, clock_),
        links_({{first_.address(), second_.address()}, TestHello()}, loop_, clock_) {}
  ~RouterLinksTest() override {
    if (!runner_.release_.HasBeenNotified()) runner_.release_.Notify();
    links_.Stop();
    loop_.Stop();
  }
  void Start() {
    loop_.Start(scheduler_);
    links_.Start("admin:1");
    for (FakeRouter* router : {&first_, &second_}) {
      ASSERT_TRUE(router->Wait([](const auto& seen) { return seen.hellos.size() == 1; }));
    }
  }
  bool WaitForEvents(std::size_t count) {
    return scheduler_.WaitForEvents([=](const auto& events) { return events.size() >= count; });
  }

  FakeRouter first_, second_;
  RealClock clock_;
  metrics::Registry registry_;
  WorkerMetrics metrics_;
  HeldRunner runner_;
  ScriptedScheduler scheduler_;
  StepLoop loop_;
  RouterLinks links_;
};

TEST_F(RouterLinksTest, NamesRequestsByLinkAndSession) {
  runner_.release_.Notify();
  Start();

  first_.Send(TestPrefill("r"));
  second_.Send(TestPrefill("r"));

  ASSERT_TRUE(WaitForEvents(2));
  const auto events = scheduler_.events();
  const SessionKey one = std::get<RouterEvent>(events[0]).from;
  const SessionKey two = std::get<RouterEvent>(events[1]).from;
  EXPECT_NE(one.link, two.link);
}

TEST_F(RouterLinksTest, ALostSessionComesAfterItsLastMessage) {
  runner_.release_.Notify();
  Start();
  first_.Send(session::Cancel{"r"});
  ASSERT_TRUE(WaitForEvents(1));

  first_.CloseSession();

  ASSERT_TRUE(WaitForEvents(2));
  const auto events = scheduler_.events();
  ASSERT_TRUE(std::holds_alternative<SessionLost>(events[1]));
  EXPECT_EQ(std::get<SessionLost>(events[1]).session, std::get<RouterEvent>(events[0]).from);
}

TEST_F(RouterLinksTest, SendsToTheSessionNamedAndDropsForOthers) {
  runner_.release_.Notify();
  Start();
  first_.Send(session::Cancel{"r"});
  ASSERT_TRUE(WaitForEvents(1));
  const auto events = scheduler_.events();
  const SessionKey from = std::get<RouterEvent>(events[0]).from;

  links_.Send({from.link, from.session + 1}, session::ReserveQueued{"stale", 0});
  links_.Send({7, 1}, session::ReserveQueued{"nowhere", 0});
  links_.Send(from, session::ReserveQueued{"good", 0});

  ASSERT_TRUE(first_.Wait([](const auto& seen) { return !seen.messages.empty(); }));
  const auto messages = first_.messages();
  EXPECT_EQ(std::get<session::ReserveQueued>(messages[0]).request_id, "good");
  EXPECT_TRUE(second_.messages().empty());
}

TEST_F(RouterLinksTest, RefusesRequestsWhenTheEngineIsFarBehind) {
  Start();
  first_.Send(TestPrefill("running"));
  runner_.entered_.WaitForNotification();

  for (int i = 0; i < 20; ++i) first_.Send(TestPrefill(absl::StrCat("r", i)));

  ASSERT_TRUE(first_.Wait([](const auto& seen) { return seen.messages.size() >= 16; }));
  const auto messages = first_.messages();
  const auto& failed = std::get<session::RequestFailed>(messages[0]);
  EXPECT_EQ(failed.status.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(RouterLinksTest, TellsTheAdminAddressAndTheLoad) {
  runner_.release_.Notify();
  Start();

  for (FakeRouter* router : {&first_, &second_}) {
    EXPECT_TRUE(router->Wait([](const auto& seen) {
      return seen.hellos[0].admin_address == "admin:1" && seen.load.blocks.total == 10;
    }));
  }
  EXPECT_EQ(links_.num_connected(), 2);
}

}  // namespace
}  // namespace baton::worker
