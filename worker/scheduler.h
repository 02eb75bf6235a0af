#pragma once
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sampling_params.h"
#include "engine/model_runner.h"
#include "session/messages.h"
#include "worker/events.h"

namespace baton::worker {

// Where a scheduler's messages to routers go; RouterLinks in a worker, a recorder in tests.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // Never blocks; dropped when that session is over.
  virtual void Send(SessionKey to, session::WorkerMessage message) = 0;
};

// Computes steps over the worker's KV pool; EngineHost in a worker, a fake in tests.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // As engine::ModelRunner::Step.
  virtual absl::Status Step(std::span<const engine::SequenceStep> sequences,
                            const engine::StepHooks& hooks) = 0;
};

// The core of a worker: which sequences are computed next and what becomes of the results. Plain
// and single-threaded (no thread, gRPC or wall clock inside), driven by a StepLoop:
//
//   Handle(event)...  Tick()  PlanStep()  [OnLayer, OnLogits, OnToken]...  FinishStep()  and again.
//
// Time comes from the Clock given at construction.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  virtual void Handle(Event event) = 0;
  // Ends what is due (deadlines). Afterwards NextDeadline() lies in the future.
  virtual void Tick() = 0;
  // When Tick must run if no event comes before; InfiniteFuture for never.
  virtual absl::Time NextDeadline() const = 0;

  // The sequences of the next step, empty when nothing can be computed until an event comes. What
  // the spans refer to stays as it is until FinishStep, which follows every non-empty plan.
  virtual std::span<const engine::SequenceStep> PlanStep() = 0;
  // Whether OnLayer does anything: a step that nobody watches can be computed in one go.
  virtual bool watches_layers() const = 0;
  virtual void OnLayer(int layer) = 0;
  virtual void OnLogits(int index, int row, std::span<float> logits) = 0;
  virtual void OnToken(int index, SampledToken token) = 0;
  // Takes in the step's results, or its failure, and sends the outputs.
  virtual void FinishStep(const absl::Status& status) = 0;

  // For heartbeats and metrics; `draining` as told by DrainStarted.
  virtual session::WorkerLoad Load() const = 0;
  // Holds no request and no block on behalf of one.
  virtual bool idle() const = 0;
};

// What a step tells `scheduler`, which must outlive the result.
inline engine::StepHooks HooksOf(Scheduler& scheduler) {
  engine::StepHooks hooks;
  if (scheduler.watches_layers()) {
    hooks.on_layer = [&scheduler](int layer) { scheduler.OnLayer(layer); };
  }
  hooks.on_logits = [&scheduler](int index, int row, std::span<float> logits) {
    scheduler.OnLogits(index, row, logits);
  };
  hooks.on_token = [&scheduler](int index, SampledToken token) {
    scheduler.OnToken(index, std::move(token));
  };
  return hooks;
}

}  // namespace baton::worker
