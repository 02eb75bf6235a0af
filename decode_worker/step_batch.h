#pragma once
#include <span>
#include <vector>

#include "decode_worker/step_planner.h"
#include "engine/model_runner.h"
#include "engine/sampling/sampler.h"

namespace baton::decode_worker {

// The step under way: says to the engine what to compute, scores prompts, and keeps the results
// until the step is known to have succeeded. Not thread-safe.
class StepBatch {
 public:
  struct Sampled {
    Sequence* sequence = nullptr;
    SampledToken token;
  };

  // Starts a step. The result refers to the sequences' tokens and block tables, which must stay as
  // they are until Commit or Abandon.
  std::span<const engine::SequenceStep> Begin(StepPlan plan);
  // As engine::LogitsHook, of the step begun last. Changes no sequence.
  void OnLogits(int index, int row, std::span<float> logits);
  // As engine::TokenHook, likewise.
  void OnToken(int index, SampledToken token);

  // The step succeeded: advances every planned sequence, keeps the prompt log-probabilities asked
  // for, and appends each sampled token to its sequence. In plan order.
  std::vector<Sampled> Commit();
  // The step failed: no sequence has changed.
  void Abandon() { plan_ = StepPlan(); }
  const StepPlan& plan() const { return plan_; }

 private:
  struct Scored {
    Sequence* sequence = nullptr;
    SampledToken token;
  };
  StepPlan plan_;
  engine::Sampler scorer_;
  std::vector<engine::SequenceStep> steps_;
  std::vector<Sampled> sampled_;
  std::vector<Scored> scored_;
};

}  // namespace baton::decode_worker
