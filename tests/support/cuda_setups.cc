#include "tests/support/cuda_setups.h"

#include <memory>
#include <utility>

#include "common/status.h"
#include "engine/model/model_plan.h"
#include "engine/ops/cuda/cuda_backend.h"

namespace baton::testing {
namespace {

engine::CudaOptions OptionsOf(const EngineSetup& setup) {
  return {.type = setup.kv,
          .max_rows = setup.max_rows,
          .max_sequences = setup.max_sequences,
          .block_size = setup.block_size,
          .graphs = setup.graphs,
          // Emulation is slow, and the machine may be busy.
          .step_timeout = absl::Minutes(10)};
}

absl::StatusOr<std::unique_ptr<engine::Ops>> MakeOnCuda(const EngineSetup& setup,
                                                        const engine::ModelPlan& plan) {
  return engine::MakeCudaOps(OptionsOf(setup), plan);
}

}  // namespace

EngineSetup CudaSetup(engine::KvDType type) {
  EngineSetup setup{.backend = Backend::kCuda, .kv = type};
  setup.max_rows = 64;
  setup.kv_tokens = 2048;
  setup.make_ops = MakeOnCuda;
  return setup;
}

std::vector<EngineSetup> CudaSetups() {
  return {CudaSetup(engine::KvDType::kBF16), CudaSetup(engine::KvDType::kF16)};
}

absl::StatusOr<std::unique_ptr<engine::RankGroup>> MakeCudaRankGroup(
    std::shared_ptr<const checkpoint::Checkpoint> checkpoint, const EngineSetup& setup,
    int world_size) {
  BATON_ASSIGN_OR_RETURN(const engine::ModelPlan plan,
                         engine::MakeModelPlan(checkpoint->metadata(), 0));
  engine::RankGroupOptions group;
  BATON_ASSIGN_OR_RETURN(group.communicators, engine::MakeCudaGroup(world_size));
  const auto communicators = group.communicators;
  const auto load = [&](int rank) -> absl::StatusOr<std::unique_ptr<engine::ModelRunner>> {
    BATON_ASSIGN_OR_RETURN(engine::Shard shard, engine::MakeShard(plan, world_size, rank));
    engine::ModelPlan local = engine::LocalPlan(plan, shard);
    engine::CudaOptions options = OptionsOf(setup);
    options.device = rank;
    BATON_ASSIGN_OR_RETURN(auto ops,
                           engine::MakeCudaRankOps(options, {.whole = plan,
                                                             .shard = std::move(shard),
                                                             .communicator = communicators[rank]}));
    return engine::ModelRunner::Load(checkpoint, std::move(local), std::move(ops), setup.max_rows,
                                     nullptr);
  };
  BATON_ASSIGN_OR_RETURN(auto ranks, engine::RankGroup::Load(std::move(group), load));
  const engine::KvLayout layout = ranks->runner(0).MakeKvLayout(setup.block_size, setup.kv);
  BATON_RETURN_IF_ERROR(
      ranks->MakeKvPools(setup.block_size, setup.kv, layout.BlocksFor(setup.kv_tokens)));
  return ranks;
}

}  // namespace baton::testing
