#include "engine/ops/cuda/nccl_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/status.h"
#include "gpu/nccl_reaper.h"
#include "gpu/nccl_status.h"
#include "gpu/status.h"

namespace baton::engine::cuda {
namespace {

constexpr absl::Duration kPoll = absl::Microseconds(50);

}  // namespace

struct NcclCommunicator::Group {
  NcclGroupOptions options;
  ncclUniqueId id;
  mutable absl::Mutex mutex;
  absl::Status failure ABSL_GUARDED_BY(mutex);
  std::vector<NcclCommunicator*> ranks ABSL_GUARDED_BY(mutex);  // null: destroyed

  absl::Status Failure() const {
    absl::MutexLock lock(&mutex);
    return failure;
  }
};

absl::StatusOr<std::vector<std::shared_ptr<NcclCommunicator>>> NcclCommunicator::MakeGroup(
    const NcclGroupOptions& options) {
  BATON_CHECK(options.world_size > 0, "a group without ranks");
  const auto group = std::make_shared<Group>();
  group->options = options;
  BATON_NCCL_RETURN_IF_ERROR(nullptr, ncclGetUniqueId(&group->id));
  std::vector<std::shared_ptr<NcclCommunicator>> ranks;
  absl::MutexLock lock(&group->mutex);
  for (int rank = 0; rank < options.world_size; ++rank) {
    ranks.emplace_back(new NcclCommunicator(group, rank));
    group->ranks.push_back(ranks.back().get());
  }
  return ranks;
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<Group> group, int rank)
    : group_(std::move(group)), rank_(rank) {}

NcclCommunicator::~NcclCommunicator() { Disconnect(); }

void NcclCommunicator::Disconnect() {
  {
    absl::MutexLock lock(&group_->mutex);
    group_->ranks[rank_] = nullptr;
  }
  absl::MutexLock lock(&mutex_);
  connected_ = false;
  if (comm_ == nullptr) return;
  // Peers may be gone already, so that nothing is left to agree on.
  const gpu::Doomed doomed{.comm = comm_, .stream = stream_, .device = device_};
  gpu::NcclReaper({.timeout = group_->options.abort_timeout, .on_hang = nullptr}).Abort({doomed});
  comm_ = nullptr;
}

int NcclCommunicator::world_size() const { return group_->options.world_size; }

absl::Status NcclCommunicator::Connect(cudaStream_t stream) {
  stream_ = stream;
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device_));
  if (absl::Status status = Initialize(); !status.ok()) return FailGroup(status);
  absl::MutexLock lock(&mutex_);
  connected_ = true;
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Initialize() {
  {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    absl::MutexLock lock(&mutex_);
    BATON_NCCL_RETURN_IF_ERROR(
        nullptr, ncclCommInitRankConfig(&comm_, world_size(), group_->id, rank_, &config));
  }
  return AwaitRest("connecting the tensor-parallel group", group_->options.connect_timeout);
}

absl::Status NcclCommunicator::AwaitRest(const char* what, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  for (;;) {
    BATON_RETURN_IF_ERROR(group_->Failure());
    {
      absl::MutexLock lock(&mutex_);
      ncclResult_t state = ncclSuccess;
      BATON_NCCL_RETURN_IF_ERROR(comm_, ncclCommGetAsyncError(comm_, &state));
      if (state != ncclInProgress) return gpu::ToStatus(state, comm_, what);
    }
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrFormat("NCCL is not done after %s: %s", absl::FormatDuration(timeout), what));
    }
    absl::SleepFor(kPoll);
  }
}

template <class Call>
absl::Status NcclCommunicator::Queue(const char* what, const Call& call) {
  BATON_RETURN_IF_ERROR(group_->Failure());
  ncclResult_t result = ncclSuccess;
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    BATON_CHECK(connected_, "a group that is not connected");
    result = call(comm_);
    status = gpu::ToStatus(result, comm_, what);
  }
  // The first call of a kind connects ranks, which goes on after the call has returned.
  if (status.ok() && result == ncclInProgress) {
    status = AwaitRest(what, group_->options.call_timeout);
  }
  return status.ok() ? status : FailGroup(status);
}

absl::Status NcclCommunicator::AllReduceSum(const float* send, float* receive, std::size_t count) {
  return Queue("ncclAllReduce", [&](ncclComm_t comm) {
    return ncclAllReduce(send, receive, count, ncclFloat, ncclSum, comm, stream_);
  });
}

absl::Status NcclCommunicator::AllGather(const void* send, std::size_t bytes, void* receive) {
  return Queue("ncclAllGather", [&](ncclComm_t comm) {
    return ncclAllGather(send, receive, bytes, ncclInt8, comm, stream_);
  });
}

absl::Status NcclCommunicator::FailGroup(const absl::Status& status) {
  Abort(Annotate(status, absl::StrCat("rank ", rank_)));
  return group_->Failure();
}

void NcclCommunicator::Abort(const absl::Status& status) {
  absl::MutexLock lock(&group_->mutex);
  if (!group_->failure.ok()) return;
  group_->failure =
      status.ok() ? absl::InternalError("tensor-parallel group ended without a reason") : status;
  for (NcclCommunicator* rank : group_->ranks) {
    if (rank != nullptr) rank->Revoke();
  }
}

// Raises flags that kernels look at. Memory is freed by the destructor, after all of them.
void NcclCommunicator::Revoke() {
  absl::MutexLock lock(&mutex_);
  if (connected_) ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT);
}

absl::Status NcclCommunicator::status() const {
  BATON_RETURN_IF_ERROR(group_->Failure());
  absl::MutexLock lock(&mutex_);
  if (!connected_) return absl::OkStatus();
  ncclResult_t state = ncclSuccess;
  BATON_NCCL_RETURN_IF_ERROR(comm_, ncclCommGetAsyncError(comm_, &state));
  return gpu::ToStatus(state, comm_, "a call of the tensor-parallel group");
}

}  // namespace baton::engine::cuda
