#pragma once
#include <memory>
#include <vector>

#include "engine/parallel/rank_group.h"
#include "tests/support/golden_engine.h"

namespace baton::testing {

// The CUDA backend in bf16 and f16, for tests that link it with kernels (emulated or not).
EngineSetup CudaSetup(engine::KvDType type);
std::vector<EngineSetup> CudaSetups();

// A model computed by `world_size` ranks, on devices 0, 1, ..., with pools of setup.kv_tokens.
absl::StatusOr<std::unique_ptr<engine::RankGroup>> MakeCudaRankGroup(
    std::shared_ptr<const checkpoint::Checkpoint> checkpoint, const EngineSetup& setup,
    int world_size);

}  // namespace baton::testing
