#include "tests/support/rank_group_engine.h"

#include <utility>
#include <vector>

#include "common/status.h"
#include "engine/model/model_plan.h"
#include "engine/parallel/cpu_rank.h"

namespace baton::testing {

absl::StatusOr<std::unique_ptr<engine::RankGroup>> MakeCpuRankGroup(
    std::shared_ptr<const checkpoint::Checkpoint> checkpoint, const EngineSetup& setup,
    int world_size, const WrapOps& wrap) {
  BATON_ASSIGN_OR_RETURN(const engine::ModelPlan plan,
                         engine::MakeModelPlan(checkpoint->metadata(), 0));
  // More threads than cores: nobody spins.
  const auto communicators = engine::ThreadCommunicator::MakeGroup(
      {.world_size = world_size, .spin = absl::ZeroDuration(), .timeout = absl::Seconds(60)});
  engine::RankGroupOptions options{.spin = absl::ZeroDuration(), .timeout = absl::Seconds(60)};
  options.communicators.assign(communicators.begin(), communicators.end());
  const auto load = [&](int rank) -> absl::StatusOr<std::unique_ptr<engine::ModelRunner>> {
    BATON_ASSIGN_OR_RETURN(engine::Shard shard, engine::MakeShard(plan, world_size, rank));
    engine::ModelPlan local = engine::LocalPlan(plan, shard);
    std::unique_ptr<engine::Ops> ops = engine::MakeCpuRankOps(
        {.compute = setup.compute, .num_threads = setup.num_threads, .spin = absl::ZeroDuration()},
        {.whole = plan, .shard = std::move(shard), .communicator = communicators[rank]});
    if (wrap) ops = wrap(rank, std::move(ops));
    return engine::ModelRunner::Load(checkpoint, std::move(local), std::move(ops), setup.max_rows,
                                     nullptr);
  };
  BATON_ASSIGN_OR_RETURN(auto group, engine::RankGroup::Load(std::move(options), load));
  const engine::KvLayout layout = group->runner(0).MakeKvLayout(setup.block_size, setup.kv);
  BATON_RETURN_IF_ERROR(
      group->MakeKvPools(setup.block_size, setup.kv, layout.BlocksFor(setup.kv_tokens)));
  return group;
}

}  // namespace baton::testing
