#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/bounded_queue.h"
#include "common/clock.h"
#include "session/messages.h"
#include "worker/events.h"
#include "worker/metrics.h"
#include "worker/scheduler.h"

namespace baton::worker {

// The worker's one engine thread: takes events from a bounded queue, lets the scheduler handle
// them, runs the step it plans, and sleeps on the queue when there is nothing to compute.
// Thread-safe; none of its callers ever touches the scheduler.
class StepLoop {
 public:
  struct Options {
    std::size_t queue_capacity = 16384;  // events
    int nice = 0;                        // of the engine thread
    // OK, or why no step of the runner can succeed any more; asked after a step that failed, on the
    // engine thread. Null: steps fail one by one.
    std::function<absl::Status()> health;
  };
  // Does not start the thread. All referred objects must outlive the loop.
  StepLoop(Options options, StepRunner& runner, WorkerMetrics& metrics, const Clock& clock);
  // Stop().
  ~StepLoop();

  // Starts the thread over `scheduler`, which must outlive the loop or its Stop. Call once.
  void Start(Scheduler& scheduler);
  // Ends the thread after the step under way; events still queued are not handled. Idempotent.
  void Stop();

  // Queues a new request's event. False, with `event` untouched, when the queue is half full or
  // stopped: the other half is kept for events that must not be lost. Never blocks.
  bool TryPost(Event&& event);
  // Queues any other event, waiting for room at most `patience`; false if lost (then logged).
  bool Post(Event event, absl::Duration patience = absl::InfiniteDuration());

  // The scheduler's load after its last event or step.
  session::WorkerLoad load() const;
  // Waits until every event posted before the call was handled; false at the deadline.
  bool Flush(absl::Time deadline);
  // Waits until every event posted was handled and the scheduler holds no request.
  bool WaitUntilIdle(absl::Time deadline);
  // OK, or why no step can succeed any more. The loop goes on, so that every request is told.
  absl::Status failure() const;
  // Number of steps run.
  std::int64_t num_steps() const { return num_steps_.load(std::memory_order_relaxed); }

 private:
  void Run(Scheduler& scheduler);
  bool RunStep(Scheduler& scheduler);  // false: nothing to compute
  void Publish(const Scheduler& scheduler, std::size_t handled);
  void Count(int posted, int handled);

  const Options options_;
  StepRunner& runner_;
  WorkerMetrics& metrics_;
  const Clock& clock_;
  BoundedQueue<Event> queue_;
  std::atomic<std::int64_t> num_steps_ = 0;
  mutable absl::Mutex mutex_;
  session::WorkerLoad load_ ABSL_GUARDED_BY(mutex_);
  std::int64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;   // events ever
  std::int64_t handled_ ABSL_GUARDED_BY(mutex_) = 0;  // of them, by the scheduler or lost
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool idle_ ABSL_GUARDED_BY(mutex_) = true;  // the scheduler's, as last published
  std::thread thread_;
};

}  // namespace baton::worker
