#pragma once
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "engine/model/model_plan.h"
#include "engine/parallel/rank_group.h"
#include "worker/worker_config.h"

namespace baton::worker {

// Whether the configured arithmetic is plain float.
bool ComputesInF32(const WorkerConfig& config);

// Loads a model for the ranks that `config` asks for, on the backend that it names, without KV
// pools. The ranks' threads inherit the caller's niceness; with several ranks the caller is bound
// to the first one's cores. `on_progress(done, total)` is called per layer of rank 0; may be null.
//   kFailedPrecondition  the model or the backend cannot be shared among as many
//   errors of ModelRunner::Load
absl::StatusOr<std::unique_ptr<engine::RankGroup>> LoadRankGroup(
    const WorkerConfig& config, std::shared_ptr<const checkpoint::Checkpoint> checkpoint,
    const engine::ModelPlan& plan, int max_rows, const std::function<void(int, int)>& on_progress);

}  // namespace baton::worker
