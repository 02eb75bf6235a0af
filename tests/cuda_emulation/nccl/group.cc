#include "cuda_emulation/nccl/group.h"

#include <algorithm>
#include <utility>

#include "cuda_emulation/runtime.h"

namespace cuda_emulation::nccl {
namespace {

struct Group {
  int depth = 0;
  std::vector<Operation> operations;
  std::vector<ncclComm*> initialising;
};
thread_local Group group;

// Operations of one communicator, which move together.
struct Batch {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Operation> operations;
};

void RunInTurn(const Batch& batch, std::uint64_t ticket) {
  ncclComm* const comm = batch.comm;
  const ncclResult_t state = comm->async_error();
  if (comm->AwaitTurn(ticket) && (state == ncclSuccess || state == ncclInProgress)) {
    std::vector<Transfer> transfers;
    for (const Operation& operation : batch.operations) operation.transfers(&transfers);
    if (Exchange(comm, transfers)) {
      for (const Operation& operation : batch.operations) {
        if (operation.finish) operation.finish();
      }
    }
  }
  comm->EndTurn();
}

ncclResult_t Submit(Batch batch) {
  ncclComm* const comm = batch.comm;
  const cudaStream_t stream = batch.stream;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess) return ncclUnhandledCudaError;
  std::function<void()> run;
  if (capture == cudaStreamCaptureStatusNone) {
    run = [batch = std::move(batch), ticket = comm->NewTicket()] { RunInTurn(batch, ticket); };
  } else {
    // Each replay takes its place in the order when it runs.
    run = [batch = std::move(batch), token = comm->graph_token] {
      RunInTurn(batch, batch.comm->NewTicket());
    };
  }
  if (SubmitToStream(stream, std::move(run)) != cudaSuccess) {
    if (capture == cudaStreamCaptureStatusNone) comm->EndTurn();
    return ncclUnhandledCudaError;
  }
  if (comm->blocking || comm->connected.exchange(true)) return ncclSuccess;
  // The first operation of a non-blocking communicator connects in the background.
  comm->connect_polls = 1;
  int expected = ncclSuccess;
  comm->state.compare_exchange_strong(expected, ncclInProgress);
  return ncclInProgress;
}

// One batch for each communicator, in the order of their first operations.
ncclResult_t SubmitAll(std::vector<Operation> operations) {
  std::vector<Batch> batches;
  for (Operation& operation : operations) {
    const auto it = std::find_if(batches.begin(), batches.end(),
                                 [&](const Batch& batch) { return batch.comm == operation.comm; });
    if (it != batches.end() && it->stream != operation.stream) {
      operation.comm->Refuse("a group uses one communicator on two streams: not emulated");
      return ncclInvalidUsage;
    }
    Batch& batch = it != batches.end() ? *it : batches.emplace_back();
    batch.comm = operation.comm;
    batch.stream = operation.stream;
    batch.operations.push_back(std::move(operation));
  }
  ncclResult_t result = ncclSuccess;
  for (Batch& batch : batches) {
    const ncclResult_t one = Submit(std::move(batch));
    if (one != ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) result = one;
  }
  return result;
}

ncclResult_t AwaitInitialised(const std::vector<ncclComm*>& comms) {
  ncclResult_t result = ncclSuccess;
  for (ncclComm* comm : comms) {
    if (!comm->blocking) {
      if (result == ncclSuccess) result = ncclInProgress;
      continue;
    }
    comm->background.join();
    if (comm->async_error() != ncclSuccess) result = comm->async_error();
  }
  return result;
}

}  // namespace

bool InGroup() { return group.depth > 0; }
void AwaitAtGroupEnd(ncclComm* comm) { group.initialising.push_back(comm); }

ncclResult_t Add(Operation operation) {
  std::vector<Operation> alone;
  std::vector<Operation>& to = InGroup() ? group.operations : alone;
  to.push_back(std::move(operation));
  return InGroup() ? ncclSuccess : SubmitAll(std::move(alone));
}

}  // namespace cuda_emulation::nccl

extern "C" {

ncclResult_t ncclGroupStart() {
  BATON_NCCL_FAULT(ncclGroupStart);
  ++cuda_emulation::nccl::group.depth;
  return ncclSuccess;
}

// A fault injected here drops the group's operations, as a failing launch does.
ncclResult_t ncclGroupEnd() {
  auto& group = cuda_emulation::nccl::group;
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0) return ncclSuccess;
  auto operations = std::exchange(group.operations, {});
  const auto initialising = std::exchange(group.initialising, {});
  BATON_NCCL_FAULT(ncclGroupEnd);
  const ncclResult_t initialised = cuda_emulation::nccl::AwaitInitialised(initialising);
  if (initialised != ncclSuccess) return initialised;
  return cuda_emulation::nccl::SubmitAll(std::move(operations));
}

}  // extern "C"
