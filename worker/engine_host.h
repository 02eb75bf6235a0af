#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "common/metrics.h"
#include "common/transfer_ticket.h"
#include "engine/kv/block_allocator.h"
#include "engine/kv/kv_layout.h"
#include "engine/model/model_plan.h"
#include "engine/model_runner.h"
#include "engine/parallel/rank_group.h"
#include "kvtransfer/device_transfer.h"
#include "kvtransfer/transfer.h"
#include "worker/scheduler.h"
#include "worker/worker_config.h"

namespace baton::worker {

// How many KV blocks a worker gets: kv_blocks if set, else kv_memory / bytes of a block over all
// layers, else what max_num_seqs sequences of min(max_context, 2048) tokens need but at most a
// quarter of `machine_bytes` and at least one sequence of max_context tokens when that fits half.
//   kInvalidArgument  the memory given does not hold one block; names both sizes
absl::StatusOr<int> ChooseNumBlocks(const WorkerConfig& config, const engine::KvLayout& layout,
                                    int max_context, std::uint64_t machine_bytes);

// A loaded model, on one rank or a group of them, with its KV pools and block allocator: everything
// a scheduler computes with. Owns all of it. Step and the allocator as they say; the rest is
// immutable.
class EngineHost final : public StepRunner {
 public:
  // Opens and loads the checkpoint (seconds for large models), logging progress. The compute
  // threads get config.nice.
  //   errors of Checkpoint::Open, MakeModelPlan, ModelRunner::Load and KvPool::Create, with the
  //   model's path
  static absl::StatusOr<std::unique_ptr<EngineHost>> Create(const WorkerConfig& config);

  absl::Status Step(std::span<const engine::SequenceStep> sequences,
                    const engine::StepHooks& hooks) override;

  const ModelFingerprint& fingerprint() const { return fingerprint_; }
  // Of rank 0; the other ranks' differs in the number of KV heads.
  const engine::KvLayout& layout() const { return ranks_->kv(0).layout(); }
  int tensor_parallel_size() const { return ranks_->world_size(); }
  // OK, or why no step can succeed any more: a rank of the group has failed.
  absl::Status health() const { return ranks_->status(); }
  engine::BlockAllocator& allocator() { return allocator_; }
  // How it cuts the KV cache.
  KvCut cut() const {
    return {.block_size = layout().block_size, .tensor_parallel_size = ranks_->world_size()};
  }
  // What transfers need to reach pools in device memory; empty where they are the host's. `side`:
  // "send" or "receive". `registry` outlives the result.
  //   kFailedPrecondition  a build without CUDA
  absl::StatusOr<kvtransfer::DeviceTransfer> MakeDeviceTransfer(const char* side,
                                                                metrics::Registry& registry) const;
  // The pool as transfers see it.
  kvtransfer::KvMemory transfer_memory() const;
  const std::string& model_name() const { return model_name_; }
  int max_context() const { return plan_.max_context; }
  int vocab_size() const { return plan_.vocab_size; }
  int num_layers() const { return layout().num_layers; }
  int max_rows() const { return ranks_->runner(0).max_rows(); }

 private:
  EngineHost(std::shared_ptr<const checkpoint::Checkpoint> checkpoint, engine::ModelPlan plan,
             std::unique_ptr<engine::RankGroup> ranks, ModelFingerprint fingerprint,
             std::string model_name);
  const std::shared_ptr<const checkpoint::Checkpoint> checkpoint_;
  const engine::ModelPlan plan_;
  const std::unique_ptr<engine::RankGroup> ranks_;
  engine::BlockAllocator allocator_;
  const ModelFingerprint fingerprint_;
  const std::string model_name_;
};

}  // namespace baton::worker
