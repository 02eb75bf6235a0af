#include "decode_worker/step_planner.h"

#include <algorithm>
#include <utility>

namespace baton::decode_worker {

StepPlan StepPlanner::Plan() {
  for (Sequence* sequence : table_.in(SequenceState::kReady)) sequence->stalled = false;
  // A sequence that stalls leaves its place to the next one. Each round but the last marks at least
  // one more as stalled or preempted, so this ends.
  do {
    FillPlaces();
  } while (GrowDecodingSequences());
  StepPlan plan;
  plan.preempted = std::exchange(preempted_, {});
  PickRows(plan);
  return plan;
}

std::vector<Sequence*> StepPlanner::Snapshot(SequenceState state) const {
  return {table_.in(state).begin(), table_.in(state).end()};
}

void StepPlanner::FillPlaces() {
  const auto free_places = [&] {
    return limits_.batch_places() - static_cast<int>(table_.in(SequenceState::kRunning).size());
  };
  for (Sequence* sequence : Snapshot(SequenceState::kReady)) {
    if (free_places() <= 0) break;
    if (sequence->stalled) continue;
    table_.MoveTo(*sequence, SequenceState::kRunning);
  }
}

bool StepPlanner::GrowDecodingSequences() {
  bool left = false;
  for (Sequence* sequence : Snapshot(SequenceState::kRunning)) {
    if (sequence->state != SequenceState::kRunning) {  // preempted by one before it
      left = true;
    } else if (sequence->num_remaining() == 1 && !Grow(*sequence)) {
      sequence->stalled = true;
      table_.MoveTo(*sequence, SequenceState::kReady);
      left = true;
    }
  }
  return left;
}

bool StepPlanner::Grow(Sequence& sequence) {
  const int missing = limits_.BlocksFor(sequence.num_tokens()) - sequence.blocks.size();
  if (missing <= 0) return true;
  while (allocator_.num_free() < missing) {
    Sequence* victim = FindVictim(sequence);
    if (victim == nullptr) return false;
    Preempt(*victim);
  }
  absl::StatusOr<engine::BlockList> blocks = allocator_.Allocate(missing);
  if (!blocks.ok()) return false;
  sequence.blocks.Append(*std::move(blocks));
  return true;
}

Sequence* StepPlanner::FindVictim(const Sequence& sequence) {
  Sequence* victim = nullptr;
  const RanksBefore before;
  for (const SequenceState state : {SequenceState::kReady, SequenceState::kRunning}) {
    if (table_.in(state).empty()) continue;
    Sequence* worst = *table_.in(state).rbegin();
    if (before(&sequence, worst) && (victim == nullptr || before(victim, worst))) victim = worst;
  }
  return victim;
}

void StepPlanner::Preempt(Sequence& sequence) {
  table_.MoveTo(sequence, SequenceState::kWaiting);
  sequence.blocks.Clear();
  sequence.num_computed = 0;
  sequence.stalled = false;
  ++sequence.preemptions;
  preempted_.push_back(&sequence);
}

void StepPlanner::PickRows(StepPlan& plan) const {
  const RankedSet& running = table_.in(SequenceState::kRunning);
  for (Sequence* sequence : running) {
    if (sequence->num_remaining() != 1) continue;
    plan.parts.push_back({sequence, 1});
    ++plan.decode_rows;
  }
  for (Sequence* sequence : running) {
    if (sequence->num_remaining() == 1) continue;
    const int rows =
        std::min(sequence->num_remaining(), limits_.max_num_batched_tokens - plan.num_rows());
    if (rows <= 0) break;
    plan.parts.push_back({sequence, rows});
    plan.prefill_rows += rows;
  }
}

}  // namespace baton::decode_worker
