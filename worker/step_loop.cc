#include "worker/step_loop.h"

#include <sys/resource.h>

#include <utility>
#include <vector>

#include "common/check.h"
#include "common/log.h"

namespace baton::worker {

StepLoop::StepLoop(Options options, StepRunner& runner, WorkerMetrics& metrics, const Clock& clock)
    : options_(std::move(options)),
      runner_(runner),
      metrics_(metrics),
      clock_(clock),
      queue_(options.queue_capacity) {}

StepLoop::~StepLoop() { Stop(); }

void StepLoop::Start(Scheduler& scheduler) {
  BATON_CHECK(!thread_.joinable(), "StepLoop started twice");
  Publish(scheduler, 0);
  thread_ = std::thread([this, &scheduler] { Run(scheduler); });
}

void StepLoop::Stop() {
  queue_.Close();
  if (thread_.joinable()) thread_.join();
}

bool StepLoop::TryPost(Event&& event) {
  if (queue_.size() >= queue_.capacity() / 2) return false;
  Count(/*posted=*/1, /*handled=*/0);
  if (queue_.TryPush(std::move(event))) return true;
  Count(/*posted=*/0, /*handled=*/1);
  return false;
}

bool StepLoop::Post(Event event, absl::Duration patience) {
  Count(/*posted=*/1, /*handled=*/0);
  if (queue_.Push(std::move(event), absl::Now() + patience)) return true;
  Count(/*posted=*/0, /*handled=*/1);
  if (!queue_.closed()) log::Error("event lost: the engine's queue stayed full");
  return false;
}

session::WorkerLoad StepLoop::load() const {
  absl::MutexLock lock(&mutex_);
  return load_;
}

absl::Status StepLoop::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

bool StepLoop::Flush(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const std::int64_t target = posted_;
  const auto handled = [this, target]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return handled_ >= target; };
  return mutex_.AwaitWithDeadline(absl::Condition(&handled), deadline);
}

bool StepLoop::WaitUntilIdle(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return idle_ && handled_ >= posted_;
  };
  return mutex_.AwaitWithDeadline(absl::Condition(&idle), deadline);
}

void StepLoop::Run(Scheduler& scheduler) {
  // Niceness is the thread's own on Linux. Refusal (a negative value without the right) is not
  // fatal.
  if (options_.nice != 0 && setpriority(PRIO_PROCESS, 0, options_.nice) != 0) {
    log::Warn("cannot set the niceness of the engine thread", {{"nice", options_.nice}});
  }
  bool computing = false;
  while (true) {
    const absl::Time until = computing ? absl::InfinitePast() : scheduler.NextDeadline();
    std::vector<Event> events = queue_.PopAll(until);
    if (queue_.closed()) return;
    for (Event& event : events) scheduler.Handle(std::move(event));
    scheduler.Tick();
    computing = RunStep(scheduler);
    Publish(scheduler, events.size());
  }
}

bool StepLoop::RunStep(Scheduler& scheduler) {
  const std::span<const engine::SequenceStep> plan = scheduler.PlanStep();
  if (plan.empty()) return false;
  Publish(scheduler, 0);  // a step may take seconds: what it holds is seen while it runs
  std::size_t rows = 0;
  for (const engine::SequenceStep& sequence : plan) rows += sequence.tokens.size();
  metrics_.step_rows.Observe(static_cast<double>(rows));
  metrics_.step_sequences.Observe(static_cast<double>(plan.size()));
  const absl::Time begin = clock_.Now();
  const absl::Status status = runner_.Step(plan, HooksOf(scheduler));
  metrics_.step_seconds.Observe(absl::ToDoubleSeconds(clock_.Now() - begin));
  metrics_.steps.Add();
  num_steps_.fetch_add(1, std::memory_order_relaxed);
  if (!status.ok()) {
    metrics_.step_failures.Add();
    log::Error("engine step failed", {{"error", status.ToString()}});
    const absl::Status health = options_.health ? options_.health() : absl::OkStatus();
    absl::MutexLock lock(&mutex_);
    failure_ = health;
  }
  scheduler.FinishStep(status);
  return true;
}

void StepLoop::Publish(const Scheduler& scheduler, std::size_t handled) {
  const session::WorkerLoad load = scheduler.Load();
  metrics_.Update(load);
  absl::MutexLock lock(&mutex_);
  load_ = load;
  idle_ = scheduler.idle();
  handled_ += static_cast<std::int64_t>(handled);
}

void StepLoop::Count(int posted, int handled) {
  absl::MutexLock lock(&mutex_);
  posted_ += posted;
  handled_ += handled;
}

}  // namespace baton::worker
