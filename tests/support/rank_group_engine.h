#pragma once
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "engine/ops/ops.h"
#include "engine/parallel/rank_group.h"
#include "tests/support/golden_engine.h"

namespace baton::testing {

// Puts something around one rank's ops, or leaves them as they are.
using WrapOps =
    std::function<std::unique_ptr<engine::Ops>(int rank, std::unique_ptr<engine::Ops> ops)>;

// A model computed by `world_size` ranks on the CPU, with pools of setup.kv_tokens. `wrap` may be
// null.
absl::StatusOr<std::unique_ptr<engine::RankGroup>> MakeCpuRankGroup(
    std::shared_ptr<const checkpoint::Checkpoint> checkpoint, const EngineSetup& setup,
    int world_size, const WrapOps& wrap = nullptr);

}  // namespace baton::testing
