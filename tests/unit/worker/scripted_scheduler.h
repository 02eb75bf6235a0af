#pragma once
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/scheduler.h"

namespace baton::worker {

// A scheduler of "jobs": every request is one sequence that takes `steps_per_request` steps of one
// row. Its calls come from the loop's thread; the accessors may be called from any thread.
class ScriptedScheduler final : public Scheduler {
 public:
  explicit ScriptedScheduler(int steps_per_request = 1) : steps_per_request_(steps_per_request) {}

  void Handle(Event event) override {
    absl::MutexLock lock(&mutex_);
    if (const auto* from_router = std::get_if<RouterEvent>(&event)) {
      if (std::holds_alternative<session::Prefill>(from_router->message)) {
        left_.push_back(steps_per_request_);
      }
    }
    if (std::holds_alternative<DrainStarted>(event)) draining_ = true;
    if (std::holds_alternative<EndAll>(event)) left_.clear();
    events_.push_back(std::move(event));
  }
  void Tick() override {
    absl::MutexLock lock(&mutex_);
    ++ticks_;
    if (wake_up_at_ <= absl::Now()) wake_up_at_ = absl::InfiniteFuture();
  }
  absl::Time NextDeadline() const override {
    absl::MutexLock lock(&mutex_);
    return wake_up_at_;
  }
  std::span<const engine::SequenceStep> PlanStep() override {
    absl::MutexLock lock(&mutex_);
    steps_.clear();
    for (std::size_t i = 0; i < left_.size(); ++i) {
      steps_.push_back({.tokens = std::span(&token_, 1), .logits = engine::LogitRows::kLast});
    }
    return steps_;
  }
  bool watches_layers() const override { return false; }
  void OnLayer(int) override {}
  void OnLogits(int, int, std::span<float>) override {}
  void OnToken(int, SampledToken) override {}
  void FinishStep(const absl::Status& status) override {
    absl::MutexLock lock(&mutex_);
    last_status_ = status;
    for (int& left : left_) --left;
    std::erase_if(left_, [](int left) { return left <= 0; });
  }
  session::WorkerLoad Load() const override {
    absl::MutexLock lock(&mutex_);
    session::WorkerLoad load;
    load.blocks = {5, 1, 2, 2, 10};
    load.running = static_cast<int>(left_.size());
    load.draining = draining_;
    return load;
  }
  bool idle() const override {
    absl::MutexLock lock(&mutex_);
    return left_.empty();
  }

  std::vector<Event> events() const {
    absl::MutexLock lock(&mutex_);
    return events_;
  }
  int ticks() const {
    absl::MutexLock lock(&mutex_);
    return ticks_;
  }
  absl::Status last_status() const {
    absl::MutexLock lock(&mutex_);
    return last_status_;
  }
  void WakeUpAt(absl::Time time) {
    absl::MutexLock lock(&mutex_);
    wake_up_at_ = time;
  }
  // Waits until `condition` holds of the events seen.
  bool WaitForEvents(const std::function<bool(const std::vector<Event>&)>& condition) const {
    absl::MutexLock lock(&mutex_);
    const auto holds = [&] { return condition(events_); };
    return mutex_.AwaitWithTimeout(absl::Condition(&holds), absl::Seconds(20));
  }

 private:
  const int steps_per_request_;
  mutable absl::Mutex mutex_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> left_ ABSL_GUARDED_BY(mutex_);  // steps of each request
  int ticks_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status last_status_ ABSL_GUARDED_BY(mutex_);
  absl::Time wake_up_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  const std::int32_t token_ = 1;
  std::vector<engine::SequenceStep> steps_;
};

}  // namespace baton::worker
