#pragma once
#include <memory>

#include "engine/model/model_plan.h"
#include "engine/ops/ops.h"
#include "engine/parallel/shard.h"
#include "engine/parallel/thread_communicator.h"

namespace baton::engine {

// One rank of a group on the CPU.
struct CpuRank {
  ModelPlan whole;  // the plan of the whole model; ops are called with LocalPlan(whole, shard)
  Shard shard;
  std::shared_ptr<ThreadCommunicator> communicator;  // the rank's own
};

// As MakeCpuOps, of one rank. Weights are loaded as far as they are the rank's. Every rank is
// called the same way, each by a thread of its own, with its own matrices and KV pool; rows of x
// are whole on every rank, q and attention have the rank's heads, Logits writes to the memory that
// rank 0 is given. All results have the bits of a model computed by one rank.
std::unique_ptr<Ops> MakeCpuRankOps(const OpsOptions& options, CpuRank rank);

}  // namespace baton::engine
