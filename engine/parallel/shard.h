#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor_parallel.h"
#include "engine/model/model_plan.h"

namespace baton::engine {

// What one rank of a tensor-parallel group holds of a layer, as indices of the whole model.
struct LayerShard {
  IndexRange heads;         // query heads; those that read kv_heads
  IndexRange kv_heads;      // the same head on several ranks where there are more ranks than heads
  IndexRange intermediate;  // columns of the MLP's hidden layer, or of every expert's
};

// What one rank holds of a model. Over the ranks of a group the heads, intermediate columns, hidden
// columns and vocabulary rows are dealt out in order, each to one rank, none without any. Runs of
// columns start at multiples of 32 (a group of quantized values, a tile of a kernel) where that
// leaves every rank some.
struct Shard {
  int rank = 0;
  int world_size = 1;
  std::vector<LayerShard> layers;
  IndexRange vocab;   // rows of the head
  IndexRange hidden;  // output columns of Wo and Wdown, on backends that split these by output
};

// Whether `count` columns are dealt out in runs of 32, but for the end of the last.
bool DealsWholeRuns(int count, int world_size);

// The share of rank `rank`, 0 <= rank < world_size.
//   kInvalidArgument     world_size < 1, or a rank outside
//   kFailedPrecondition  the model has too few of something for every rank to get one; names it and
//                        the largest size that fits
absl::StatusOr<Shard> MakeShard(const ModelPlan& plan, int world_size, int rank);

// The plan of what `shard` holds: its numbers of heads and intermediate columns; hidden_size and
// vocab_size stay the model's. A share of everything gives an equal plan.
ModelPlan LocalPlan(const ModelPlan& plan, const Shard& shard);

}  // namespace baton::engine
