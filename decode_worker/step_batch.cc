#include "decode_worker/step_batch.h"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace baton::decode_worker {
namespace {

bool WantsPromptLogprobs(const Sequence& sequence) {
  return sequence.local_prefill && sequence.sampling.prompt_logprobs &&
         sequence.num_output() == 0 &&
         static_cast<int>(sequence.prompt_logprobs.size()) < sequence.prompt_size - 1;
}

engine::SequenceStep MakeStep(const Sequence& sequence, int num_rows) {
  engine::SequenceStep step;
  step.tokens = std::span(sequence.tokens)
                    .subspan(static_cast<std::size_t>(sequence.num_computed),
                             static_cast<std::size_t>(num_rows));
  step.start_position = sequence.num_computed;
  step.block_table = sequence.blocks.ids();
  step.prompt_length = sequence.prompt_size;
  if (WantsPromptLogprobs(sequence)) step.logits = engine::LogitRows::kAll;
  if (num_rows == sequence.num_remaining()) {
    step.sampling = &sequence.sampling;
    step.prompt = sequence.prompt();
    step.output = sequence.output();
  }
  return step;
}

}  // namespace

std::span<const engine::SequenceStep> StepBatch::Begin(StepPlan plan) {
  plan_ = std::move(plan);
  steps_.clear();
  sampled_.clear();
  scored_.clear();
  for (const PlannedRows& part : plan_.parts) {
    steps_.push_back(MakeStep(*part.sequence, part.num_rows));
  }
  return steps_;
}

void StepBatch::OnLogits(int index, int row, std::span<float> logits) {
  Sequence& sequence = *plan_.parts[static_cast<std::size_t>(index)].sequence;
  const int position = sequence.num_computed + row;
  // The row at `position` predicts the token after it. Rows scored before a preemption come again.
  if (WantsPromptLogprobs(sequence) && position + 1 < sequence.prompt_size &&
      position >= static_cast<int>(sequence.prompt_logprobs.size())) {
    const std::int32_t next = sequence.tokens[static_cast<std::size_t>(position) + 1];
    scored_.push_back(
        {&sequence, scorer_.Score(next, sequence.sampling.num_prompt_logprobs, logits)});
  }
}

void StepBatch::OnToken(int index, SampledToken token) {
  sampled_.push_back({plan_.parts[static_cast<std::size_t>(index)].sequence, std::move(token)});
}

std::vector<StepBatch::Sampled> StepBatch::Commit() {
  for (const PlannedRows& part : plan_.parts) part.sequence->num_computed += part.num_rows;
  for (Scored& scored : scored_) {
    scored.sequence->prompt_logprobs.push_back(std::move(scored.token));
  }
  for (const Sampled& sampled : sampled_) sampled.sequence->tokens.push_back(sampled.token.token);
  plan_ = StepPlan();
  return std::exchange(sampled_, {});
}

}  // namespace baton::decode_worker
