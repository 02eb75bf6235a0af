#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/kv/kv_pool.h"
#include "engine/model_runner.h"
#include "engine/parallel/communicator.h"
#include "engine/threads/waiting_point.h"

namespace baton::engine {

struct RankGroupOptions {
  // Of each rank, one communicator of the same group; empty for a group of one.
  std::vector<std::shared_ptr<Communicator>> communicators;
  // Of each rank, the cores that its threads are bound to (DealOutCores); empty: none is.
  std::vector<std::vector<int>> cores;
  // How long ranks look for the next step, and rank 0 for the others' end of one, before they
  // sleep.
  absl::Duration spin = absl::Microseconds(50);
  // How long rank 0 waits for the others to end a step after itself. A rank that does not end even
  // after the group has been aborted stops the process: it still uses the step's memory.
  absl::Duration timeout = absl::Minutes(5);
};

// The ranks that together compute one model: a ModelRunner and a KvPool each, on a thread each, of
// which rank 0's is the caller's. All ranks run the same step at the same time; block ids are the
// same in all pools. A rank's failure in a step is the group's: all ranks come back, and the group
// is dead. A group of one is its runner, and survives what its runner does.
// Not thread-safe: one call at a time, but status() from any thread.
class RankGroup {
 public:
  using LoadRank = std::function<absl::StatusOr<std::unique_ptr<ModelRunner>>(int rank)>;

  // Calls `load(rank)` on every rank's thread at once, bound to the rank's cores, the caller's
  // included, and keeps the runners. The first error of any rank, with its number, is returned.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Load(RankGroupOptions options,
                                                         const LoadRank& load);
  // Ends the ranks' threads. No call may be under way.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Makes every rank's pool, of blocks of its own KV heads. Once, before the first step.
  absl::Status MakeKvPools(int block_size, KvDType dtype, int num_blocks);

  // As ModelRunner::Step. on_layer is called once all ranks have written the layer, on_logits with
  // the logits of the whole vocabulary; all hooks on the calling thread.
  //   kInvalidArgument  as ModelRunner::Step: nothing was computed, the group lives
  //   any other         the group is dead; names the rank that failed. Every later step returns it
  absl::Status Step(std::span<const SequenceStep> sequences, const StepHooks& hooks);

  // OK, or why the group is dead.
  absl::Status status() const;

  int world_size() const { return static_cast<int>(ranks_.size()); }
  ModelRunner& runner(int rank) const { return *ranks_[rank].runner; }
  KvPool& kv(int rank) const { return *ranks_[rank].kv; }

 private:
  struct Rank {
    std::unique_ptr<ModelRunner> runner;
    std::unique_ptr<KvPool> kv;
    std::thread thread;  // not of rank 0
  };
  using Task = std::function<absl::Status(int rank)>;

  explicit RankGroup(RankGroupOptions options);
  void RankMain(int rank);
  // Binds the calling thread to rank 0's cores, once.
  void BindCaller();
  // Runs `task` on every rank's thread and waits for all. The first failure ends the group.
  absl::Status RunOnAll(const Task& task);
  void RunTask(int rank);
  void AwaitOthers();
  void Fail(int rank, const absl::Status& status);
  // Rank 0: waits until all others have written `layer`; false when the group has failed.
  bool AwaitLayer(int layer);

  const RankGroupOptions options_;
  std::vector<Rank> ranks_;
  std::thread::id caller_;  // the thread that is bound to rank 0's cores

  WaitingPoint waiting_;
  const Task* task_ = nullptr;                // written before num_tasks_ steps
  std::atomic<std::uint64_t> num_tasks_ = 0;  // started
  std::atomic<int> num_running_ = 0;          // ranks other than 0 in the current task
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> failed_ = false;
  std::vector<std::atomic<int>> layers_written_;  // of the current step, by rank
  mutable absl::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::engine
