#include "engine/parallel/shard.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::engine {
namespace {

constexpr int kRun = 32;

int NumRuns(int count, int run) { return (count + run - 1) / run; }

// Columns of one rank: whole runs of 32 where there are enough of them, shorter ones otherwise.
IndexRange ColumnsOfRank(int count, int world_size, int rank) {
  int run = kRun;
  while (run > 1 && NumRuns(count, run) < world_size) run /= 2;
  const IndexRange runs = PartOf(NumRuns(count, run), world_size, rank);
  return {std::min(runs.begin * run, count), std::min(runs.end * run, count)};
}

absl::Status CheckFits(const char* what, int count, int world_size) {
  if (count >= world_size) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("tensor-parallel size too large for the model: %d ranks, %d %s; lower it to "
                      "at most %d",
                      world_size, count, what, count));
}

}  // namespace

bool DealsWholeRuns(int count, int world_size) { return NumRuns(count, kRun) >= world_size; }

absl::StatusOr<Shard> MakeShard(const ModelPlan& plan, int world_size, int rank) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor-parallel rank out of range: %d of %d, must be 0..size-1", rank, world_size));
  }
  BATON_RETURN_IF_ERROR(CheckFits("hidden columns", plan.hidden_size, world_size));
  BATON_RETURN_IF_ERROR(CheckFits("vocabulary rows", plan.vocab_size, world_size));
  Shard shard{.rank = rank,
              .world_size = world_size,
              .vocab = ColumnsOfRank(plan.vocab_size, world_size, rank),
              .hidden = ColumnsOfRank(plan.hidden_size, world_size, rank)};
  for (const LayerPlan& layer : plan.layers) {
    BATON_RETURN_IF_ERROR(CheckFits("query heads", layer.num_heads, world_size));
    BATON_RETURN_IF_ERROR(
        CheckFits("intermediate columns of the MLP", layer.intermediate_size, world_size));
    shard.layers.push_back(
        {.heads = QueryHeadsOfRank(layer.num_heads, layer.num_kv_heads, world_size, rank),
         .kv_heads = KvHeadsOfRank(layer.num_kv_heads, world_size, rank),
         .intermediate = ColumnsOfRank(layer.intermediate_size, world_size, rank)});
  }
  return shard;
}

ModelPlan LocalPlan(const ModelPlan& plan, const Shard& shard) {
  ModelPlan local = plan;
  for (std::size_t i = 0; i < local.layers.size(); ++i) {
    local.layers[i].num_heads = shard.layers[i].heads.size();
    local.layers[i].num_kv_heads = shard.layers[i].kv_heads.size();
    local.layers[i].intermediate_size = shard.layers[i].intermediate.size();
  }
  return local;
}

}  // namespace baton::engine
