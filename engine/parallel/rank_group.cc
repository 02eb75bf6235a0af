#include "engine/parallel/rank_group.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "engine/parallel/core_affinity.h"

namespace baton::engine {
namespace {

// How long the other ranks may take to come back once the group has failed.
constexpr absl::Duration kReturnTime = absl::Seconds(30);

}  // namespace

RankGroup::RankGroup(RankGroupOptions options)
    : options_(std::move(options)),
      ranks_(std::max<std::size_t>(1, options_.communicators.size())),
      layers_written_(ranks_.size()) {}

absl::StatusOr<std::unique_ptr<RankGroup>> RankGroup::Load(RankGroupOptions options,
                                                           const LoadRank& load) {
  auto group = absl::WrapUnique(new RankGroup(std::move(options)));
  RankGroup* const self = group.get();
  for (int rank = 1; rank < self->world_size(); ++rank) {
    self->ranks_[rank].thread = std::thread([self, rank] { self->RankMain(rank); });
  }
  self->BindCaller();
  BATON_RETURN_IF_ERROR(self->RunOnAll([self, &load](int rank) -> absl::Status {
    BATON_ASSIGN_OR_RETURN(self->ranks_[rank].runner, load(rank));
    return absl::OkStatus();
  }));
  return group;
}

RankGroup::~RankGroup() {
  stopping_.store(true);
  waiting_.Notify();
  for (Rank& rank : ranks_) {
    if (rank.thread.joinable()) rank.thread.join();
  }
}

absl::Status RankGroup::MakeKvPools(int block_size, KvDType dtype, int num_blocks) {
  return RunOnAll([&](int rank) -> absl::Status {
    Rank& own = ranks_[rank];
    BATON_ASSIGN_OR_RETURN(
        own.kv, own.runner->NewKvPool(own.runner->MakeKvLayout(block_size, dtype), num_blocks));
    return absl::OkStatus();
  });
}

absl::Status RankGroup::Step(std::span<const SequenceStep> sequences, const StepHooks& hooks) {
  if (world_size() == 1) return ranks_[0].runner->Step(sequences, *ranks_[0].kv, hooks);
  BATON_RETURN_IF_ERROR(status());
  // What every rank would refuse is refused here, before any waits for another.
  BATON_RETURN_IF_ERROR(ranks_[0].runner->CheckStep(sequences, *ranks_[0].kv));
  BindCaller();
  for (auto& written : layers_written_) written.store(0);
  return RunOnAll([&](int rank) {
    Rank& own = ranks_[rank];
    // Present where rank 0's are, since all ranks make the same calls.
    StepHooks own_hooks = hooks;
    if (rank == 0) {
      if (hooks.on_layer) {
        own_hooks.on_layer = [&](int layer) {
          if (AwaitLayer(layer)) hooks.on_layer(layer);
        };
      }
    } else {
      if (hooks.on_layer) {
        own_hooks.on_layer = [&](int layer) {
          layers_written_[rank].store(layer + 1);
          waiting_.Notify();
        };
      }
      if (hooks.on_logits) own_hooks.on_logits = [](int, int, std::span<float>) {};
      if (hooks.on_token) own_hooks.on_token = [](int, const SampledToken&) {};
    }
    return own.runner->Step(sequences, *own.kv, own_hooks);
  });
}

absl::Status RankGroup::status() const {
  if (!failed_.load()) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  return failure_;
}

void RankGroup::RankMain(int rank) {
  if (!options_.cores.empty()) BindThread(options_.cores[rank]);
  std::uint64_t num_done = 0;
  const auto called = [this, &num_done] {
    return num_tasks_.load() > num_done || stopping_.load();
  };
  for (;;) {
    waiting_.Wait(called, options_.spin, absl::InfiniteDuration());
    if (stopping_.load()) return;
    ++num_done;
    RunTask(rank);
    num_running_.fetch_sub(1);
    waiting_.Notify();
  }
}

void RankGroup::BindCaller() {
  if (options_.cores.empty() || caller_ == std::this_thread::get_id()) return;
  caller_ = std::this_thread::get_id();
  BindThread(options_.cores[0]);
}

absl::Status RankGroup::RunOnAll(const Task& task) {
  task_ = &task;
  num_running_.store(world_size() - 1);
  num_tasks_.fetch_add(1);
  waiting_.Notify();
  RunTask(0);
  AwaitOthers();
  return status();
}

void RankGroup::RunTask(int rank) {
  if (absl::Status status = (*task_)(rank); !status.ok()) Fail(rank, status);
}

void RankGroup::AwaitOthers() {
  const auto done = [this] { return num_running_.load() == 0; };
  const absl::Duration timeout = failed_.load() ? kReturnTime : options_.timeout;
  if (waiting_.Wait(done, options_.spin, timeout)) return;
  if (!failed_.load()) {
    Fail(0, absl::DeadlineExceededError(absl::StrCat("other ranks did not end the step within ",
                                                     absl::FormatDuration(options_.timeout))));
  }
  // The step's memory is the caller's, and a rank still uses it.
  BATON_CHECK(waiting_.Wait(done, options_.spin, kReturnTime),
              "a tensor-parallel rank does not come back from a step");
}

void RankGroup::Fail(int rank, const absl::Status& status) {
  const absl::Status named =
      world_size() == 1 ? status : Annotate(status, absl::StrCat("tensor-parallel rank ", rank));
  {
    absl::MutexLock lock(&mutex_);
    if (failure_.ok()) failure_ = named;
  }
  failed_.store(true);
  waiting_.Notify();
  if (!options_.communicators.empty() && options_.communicators[rank] != nullptr) {
    options_.communicators[rank]->Abort(named);
  }
}

bool RankGroup::AwaitLayer(int layer) {
  const auto written = [this, layer] {
    return failed_.load() ||
           std::all_of(layers_written_.begin() + 1, layers_written_.end(),
                       [layer](const std::atomic<int>& of_rank) { return of_rank.load() > layer; });
  };
  if (waiting_.Wait(written, options_.spin, options_.timeout)) return !failed_.load();
  Fail(0, absl::DeadlineExceededError(absl::StrCat("other ranks did not write layer ", layer,
                                                   " within ",
                                                   absl::FormatDuration(options_.timeout))));
  return false;
}

}  // namespace baton::engine
