#include "worker/rank_group_loader.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status.h"
#include "engine/ops/ops.h"
#include "engine/parallel/core_affinity.h"
#include "engine/parallel/cpu_rank.h"
#include "engine/parallel/shard.h"
#include "engine/parallel/thread_communicator.h"
#include "worker/cuda_settings.h"

namespace baton::worker {
namespace {

using engine::ModelRunner;
using engine::RankGroup;

engine::OpsOptions OptionsOfRank(const WorkerConfig& config) {
  const int threads = config.threads > 0
                          ? config.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  engine::OpsOptions options;
  options.compute = ComputesInF32(config) ? engine::ComputeMode::kF32 : engine::ComputeMode::kFast;
  options.num_threads = std::max(1, threads / config.tensor_parallel_size);
  return options;
}

std::unique_ptr<engine::Ops> MakeHostOps(const WorkerConfig& config) {
  if (config.backend == "reference") return engine::MakeReferenceOps();
  return engine::MakeCpuOps(OptionsOfRank(config));
}

absl::StatusOr<std::unique_ptr<RankGroup>> LoadOne(
    const WorkerConfig& config, std::shared_ptr<const checkpoint::Checkpoint> checkpoint,
    const engine::ModelPlan& plan, int max_rows, const std::function<void(int, int)>& on_progress) {
  return RankGroup::Load({}, [&](int) {
    return ModelRunner::Load(checkpoint, plan, MakeHostOps(config), max_rows, on_progress);
  });
}

// A device for each rank.
absl::StatusOr<std::unique_ptr<RankGroup>> LoadOnDevices(
    const WorkerConfig& config, std::shared_ptr<const checkpoint::Checkpoint> checkpoint,
    const engine::ModelPlan& plan, int max_rows, const std::function<void(int, int)>& on_progress) {
  const int world_size = config.tensor_parallel_size;
  BATON_ASSIGN_OR_RETURN(const engine::KvDType type, ChooseCudaType(config, *checkpoint));
  engine::RankGroupOptions options;
  if (world_size > 1) {
    // Before any rank waits for one that has no device.
    const int last = config.device + world_size - 1;
    if (auto device = engine::DescribeCudaDevice(last); !device.ok()) {
      return Annotate(device.status(),
                      absl::StrFormat("tensor-parallel-size %d takes devices %d to %d", world_size,
                                      config.device, last));
    }
    BATON_ASSIGN_OR_RETURN(options.communicators, engine::MakeCudaGroup(world_size));
  }
  const auto communicators = options.communicators;
  const auto load = [&](int rank) -> absl::StatusOr<std::unique_ptr<ModelRunner>> {
    BATON_ASSIGN_OR_RETURN(engine::Shard shard, engine::MakeShard(plan, world_size, rank));
    engine::ModelPlan local = engine::LocalPlan(plan, shard);
    engine::CudaRank own{.whole = plan, .shard = std::move(shard), .communicator = nullptr};
    if (world_size > 1) own.communicator = communicators[rank];
    BATON_ASSIGN_OR_RETURN(auto ops, MakeConfiguredCudaOps(config, type, std::move(own), max_rows));
    return ModelRunner::Load(checkpoint, std::move(local), std::move(ops), max_rows,
                             rank == 0 ? on_progress : nullptr);
  };
  return RankGroup::Load(std::move(options), load);
}

}  // namespace

bool ComputesInF32(const WorkerConfig& config) {
  if (config.compute != "auto") return config.compute == "f32";
  return config.dtype == "float32" || config.dtype == "float" || config.backend == "reference";
}

absl::StatusOr<std::unique_ptr<RankGroup>> LoadRankGroup(
    const WorkerConfig& config, std::shared_ptr<const checkpoint::Checkpoint> checkpoint,
    const engine::ModelPlan& plan, int max_rows, const std::function<void(int, int)>& on_progress) {
  const int world_size = config.tensor_parallel_size;
  if (config.backend == "cuda") {
    return LoadOnDevices(config, std::move(checkpoint), plan, max_rows, on_progress);
  }
  if (world_size == 1) return LoadOne(config, std::move(checkpoint), plan, max_rows, on_progress);
  if (config.backend != "cpu") {
    return absl::FailedPreconditionError(absl::StrFormat(
        "tensor-parallel-size %d with backend %s, which computes with one rank only; use backend "
        "cpu or cuda, or leave the size at 1",
        world_size, config.backend));
  }
  std::vector<engine::Shard> shards;
  for (int rank = 0; rank < world_size; ++rank) {
    BATON_ASSIGN_OR_RETURN(shards.emplace_back(), engine::MakeShard(plan, world_size, rank));
  }
  engine::OpsOptions ops = OptionsOfRank(config);
  const std::vector<int> cores = engine::AllowedCores();
  engine::RankGroupOptions options;
  options.cores = engine::DealOutCores(cores, world_size, ops.num_threads);
  if (options.cores.empty()) {
    log::Warn("fewer cores than tensor-parallel ranks have threads: ranks share them and are slow",
              {{"cores", cores.size()}, {"ranks", world_size}, {"threads", ops.num_threads}});
    ops.spin = options.spin = absl::ZeroDuration();
  }
  const auto communicators =
      engine::ThreadCommunicator::MakeGroup({.world_size = world_size, .spin = options.spin});
  options.communicators.assign(communicators.begin(), communicators.end());
  return RankGroup::Load(std::move(options), [&](int rank) {
    engine::ModelPlan local = engine::LocalPlan(plan, shards[rank]);
    return ModelRunner::Load(
        checkpoint, std::move(local),
        engine::MakeCpuRankOps(
            ops, {.whole = plan, .shard = shards[rank], .communicator = communicators[rank]}),
        max_rows, rank == 0 ? on_progress : nullptr);
  });
}

}  // namespace baton::worker
