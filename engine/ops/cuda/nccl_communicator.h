#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/parallel/communicator.h"

namespace baton::engine::cuda {

struct NcclGroupOptions {
  int world_size = 1;
  absl::Duration connect_timeout = absl::Minutes(2);  // until all ranks have connected
  absl::Duration call_timeout = absl::Minutes(1);     // until NCCL has queued a call
  absl::Duration abort_timeout = absl::Seconds(10);   // see gpu::NcclReaper
};

// A group whose ranks are threads of this process, each with a device of its own. Calls are queued
// on the rank's stream. Both calls
// give the same bits on every rank; the order of AllReduceSum is NCCL's choice for count and
// world_size, and so are its bits.
class NcclCommunicator final : public Communicator {
 public:
  // One for each rank, in order, not yet connected.
  //   kInternal  NCCL cannot begin; says why
  static absl::StatusOr<std::vector<std::shared_ptr<NcclCommunicator>>> MakeGroup(
      const NcclGroupOptions& options);
  ~NcclCommunicator() override;

  // Connects to the others, who call it at the same time, each on its own thread with its device
  // current. Calls go to `stream` from then on, which must live until Disconnect. Once.
  //   kDeadlineExceeded  not all ranks came; errors of NCCL
  absl::Status Connect(cudaStream_t stream);
  // Leaves the group, which is of no use to the others then, and waits for the stream; what is
  // still queued is given up. Idempotent; the destructor does it too.
  void Disconnect();

  int rank() const override { return rank_; }
  int world_size() const override;
  absl::Status AllReduceSum(const float* send, float* receive, std::size_t count) override;
  absl::Status AllGather(const void* send, std::size_t bytes, void* receive) override;
  // Stops what the devices of all ranks do for the group: their streams go on, with nothing useful
  // in the results.
  void Abort(const absl::Status& status) override;
  // To be asked after every wait for the stream: a stopped call looks like a finished one.
  absl::Status status() const override;

 private:
  struct Group;
  NcclCommunicator(std::shared_ptr<Group> group, int rank);
  absl::Status Initialize();
  // Waits until NCCL has done what it was asked for.
  absl::Status AwaitRest(const char* what, absl::Duration timeout);
  // Makes `call(comm)`, which queues something.
  template <class Call>
  absl::Status Queue(const char* what, const Call& call);
  absl::Status FailGroup(const absl::Status& status);
  void Revoke();

  const std::shared_ptr<Group> group_;
  const int rank_;
  cudaStream_t stream_ = nullptr;  // not owned
  int device_ = 0;
  // One thread at a time is inside of NCCL with the communicator.
  mutable absl::Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::engine::cuda
