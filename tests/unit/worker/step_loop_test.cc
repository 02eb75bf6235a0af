#include "worker/step_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/unit/worker/scripted_scheduler.h"

namespace baton::worker {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

Event NewRequest(int number) {
  session::Prefill prefill;
  prefill.spec.request_id = absl::StrCat("r", number);
  return RouterEvent{{0, 1}, prefill, absl::Now()};
}

// Counts steps; can be told to wait in one or to fail.
class TestRunner final : public StepRunner {
 public:
  absl::Status Step(std::span<const engine::SequenceStep> sequences,
                    const engine::StepHooks&) override {
    rows_ += static_cast<int>(sequences.size());
    if (hold_ != nullptr) {
      entered_.Notify();
      hold_->WaitForNotification();
      hold_ = nullptr;
    }
    return fail_ ? absl::InternalError("told to") : absl::OkStatus();
  }
  std::atomic<int> rows_ = 0;
  absl::Notification* hold_ = nullptr;  // set before the loop starts
  absl::Notification entered_;
  bool fail_ = false;
};

struct LoopSetup {
  explicit LoopSetup(int steps_per_request = 1, std::size_t capacity = 64)
      : metrics(registry),
        scheduler(steps_per_request),
        loop({.queue_capacity = capacity, .health = [this] { return health; }}, runner, metrics,
             clock) {}
  absl::Status health;  // the runner's
  RealClock clock;
  metrics::Registry registry;
  WorkerMetrics metrics;
  TestRunner runner;
  ScriptedScheduler scheduler;
  StepLoop loop;
};

TEST(StepLoopTest, RunsStepsUntilTheWorkIsDone) {
  LoopSetup setup(/*steps_per_request=*/3);
  setup.loop.Start(setup.scheduler);

  for (int i = 0; i < 4; ++i) ASSERT_TRUE(setup.loop.TryPost(NewRequest(i)));

  EXPECT_TRUE(setup.loop.WaitUntilIdle(Soon()));
  EXPECT_EQ(setup.runner.rows_, 12);
  EXPECT_EQ(setup.metrics.steps.value(), static_cast<double>(setup.loop.num_steps()));
}

TEST(StepLoopTest, SleepsWhenThereIsNothingToDo) {
  LoopSetup setup;
  setup.loop.Start(setup.scheduler);
  ASSERT_TRUE(setup.loop.TryPost(NewRequest(0)));
  ASSERT_TRUE(setup.loop.WaitUntilIdle(Soon()));
  const int before = setup.scheduler.ticks();

  setup.loop.Post(SessionLost{{0, 1}});
  ASSERT_TRUE(setup.loop.Flush(Soon()));

  // One turn for the event, at most one that found the plan empty before it.
  EXPECT_LE(setup.scheduler.ticks(), before + 2);
}

TEST(StepLoopTest, WakesUpForTheSchedulersDeadline) {
  LoopSetup setup;
  setup.scheduler.WakeUpAt(absl::Now() + absl::Milliseconds(20));
  setup.loop.Start(setup.scheduler);

  const absl::Time limit = Soon();
  while (setup.scheduler.ticks() == 0 && absl::Now() < limit) std::this_thread::yield();

  EXPECT_GE(setup.scheduler.ticks(), 1);
}

TEST(StepLoopTest, KeepsRoomForEventsThatMustNotBeLost) {
  LoopSetup setup(1, /*capacity=*/8);
  absl::Notification release;
  setup.runner.hold_ = &release;
  setup.loop.Start(setup.scheduler);
  ASSERT_TRUE(setup.loop.TryPost(NewRequest(0)));
  setup.runner.entered_.WaitForNotification();  // the engine is busy, the queue empty

  int accepted = 0;
  while (setup.loop.TryPost(NewRequest(1 + accepted))) ++accepted;
  int kept = 0;
  while (setup.loop.Post(SessionLost{{0, 2}}, absl::ZeroDuration())) ++kept;

  EXPECT_EQ(accepted, 4);
  EXPECT_EQ(kept, 4);
  release.Notify();
  EXPECT_TRUE(setup.loop.WaitUntilIdle(Soon()));
  EXPECT_EQ(setup.scheduler.events().size(), 9u);
}

TEST(StepLoopTest, AFailedStepIsToldToTheSchedulerAndCounted) {
  LoopSetup setup;
  setup.runner.fail_ = true;
  setup.loop.Start(setup.scheduler);

  ASSERT_TRUE(setup.loop.TryPost(NewRequest(0)));
  ASSERT_TRUE(setup.loop.WaitUntilIdle(Soon()));

  EXPECT_EQ(setup.scheduler.last_status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(setup.metrics.step_failures.value(), 1);
}

TEST(StepLoopTest, PublishesTheSchedulersLoad) {
  LoopSetup setup;
  setup.loop.Start(setup.scheduler);
  setup.loop.Post(DrainStarted{});

  ASSERT_TRUE(setup.loop.Flush(Soon()));

  EXPECT_TRUE(setup.loop.load().draining);
  EXPECT_EQ(setup.metrics.draining.value(), 1);
  EXPECT_EQ(setup.metrics.blocks_free.value(), 5);
}

TEST(StepLoopTest, PostsAfterStopAreRefused) {
  LoopSetup setup;
  setup.loop.Start(setup.scheduler);
  setup.loop.Stop();

  EXPECT_FALSE(setup.loop.TryPost(NewRequest(0)));
  EXPECT_FALSE(setup.loop.Post(SessionLost{{0, 1}}));
  EXPECT_TRUE(setup.loop.WaitUntilIdle(Soon()));
}

// Every event of every thread arrives once, and those of a thread in their order.
TEST(StepLoopTest, TakesEventsFromManyThreads) {
  constexpr int kThreads = 4, kEvents = 200;
  LoopSetup setup(1, /*capacity=*/32);
  setup.loop.Start(setup.scheduler);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEvents; ++i) setup.loop.Post(SessionLost{{thread, i}});
    });
  }
  for (std::thread& thread : threads) thread.join();

  ASSERT_TRUE(setup.loop.WaitUntilIdle(Soon()));

  std::vector<int> next(kThreads, 0);
  for (const Event& event : setup.scheduler.events()) {
    const SessionKey key = std::get<SessionLost>(event).session;
    EXPECT_EQ(key.session, next[key.link]++);
  }
  EXPECT_EQ(next, std::vector<int>(kThreads, kEvents));
}

TEST(StepLoopTest, ReportsAFailureOnlyOfARunnerThatCannotGoOn) {
  LoopSetup passing, lasting;
  for (LoopSetup* setup : {&passing, &lasting}) setup->runner.fail_ = true;
  lasting.health = absl::DataLossError("a rank has failed");
  for (LoopSetup* setup : {&passing, &lasting}) {
    EXPECT_TRUE(setup->loop.failure().ok());
    setup->loop.Start(setup->scheduler);

    ASSERT_TRUE(setup->loop.TryPost(NewRequest(0)));

    EXPECT_TRUE(setup->loop.WaitUntilIdle(Soon()));  // its request was told
  }
  EXPECT_TRUE(passing.loop.failure().ok());
  EXPECT_EQ(lasting.loop.failure(), absl::DataLossError("a rank has failed"));
}

}  // namespace
}  // namespace baton::worker
