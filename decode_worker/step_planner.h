#pragma once
#include <vector>

#include "decode_worker/decode_limits.h"
#include "decode_worker/request_table.h"
#include "engine/kv/block_allocator.h"

namespace baton::decode_worker {

// The next `num_rows` uncomputed tokens of one sequence.
struct PlannedRows {
  Sequence* sequence = nullptr;
  int num_rows = 0;
};

// What the next step computes: decode rows first, then prefill chunks in the rows left.
struct StepPlan {
  std::vector<PlannedRows> parts;
  std::vector<Sequence*> preempted;  // to make room for these
  int decode_rows = 0;
  int prefill_rows = 0;
  int num_rows() const { return decode_rows + prefill_rows; }
};

// Chooses the rows of each step and moves blocks to where they are needed most. A sequence that
// needs a block for its next token takes a free one, else those of the worst-ranked sequence behind
// it, which is preempted: it gives back all it holds and waits to be computed again. One with
// nobody behind it stalls: it keeps its blocks, leaves the batch, and tries again in the next plan.
//
// So the best-ranked sequence always gets on, unless transfers hold the rest of the pool, and those
// end by completion or lease: there is no deadlock. Not thread-safe.
class StepPlanner {
 public:
  // All must outlive the planner.
  StepPlanner(const DecodeLimits& limits, RequestTable& table, engine::BlockAllocator& allocator)
      : limits_(limits), table_(table), allocator_(allocator) {}

  // Fills the places of the batch by rank and picks their rows. O(places log requests).
  StepPlan Plan();

 private:
  // For loops that change the set they walk.
  std::vector<Sequence*> Snapshot(SequenceState state) const;
  void FillPlaces();
  // Returns whether a sequence left the batch.
  bool GrowDecodingSequences();
  bool Grow(Sequence& sequence);
  // The worst-ranked sequence that holds blocks and ranks behind `sequence`; null if none.
  Sequence* FindVictim(const Sequence& sequence);
  // Frees the blocks of a sequence; it computes its prompt and its output so far again once it is
  // admitted.
  void Preempt(Sequence& sequence);
  void PickRows(StepPlan& plan) const;

  const DecodeLimits& limits_;
  RequestTable& table_;
  engine::BlockAllocator& allocator_;
  std::vector<Sequence*> preempted_;  // in the plan under way
};

}  // namespace baton::decode_worker
