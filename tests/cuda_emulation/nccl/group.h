#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <vector>

#include "cuda_emulation/nccl/communicator.h"
#include "cuda_emulation/nccl/transfer.h"

namespace cuda_emulation::nccl {

// One call of the API. `transfers` and `finish` run on the stream's thread.
struct Operation {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::function<void(std::vector<Transfer>*)> transfers;  // adds what is to be exchanged
  std::function<void()> finish;                           // once all of it was; may be null
};

// Submits the operation, or keeps it for the group's end.
ncclResult_t Add(Operation operation);

// True between ncclGroupStart and ncclGroupEnd. A communicator made then is waited for at the end.
bool InGroup();
void AwaitAtGroupEnd(ncclComm* comm);

}  // namespace cuda_emulation::nccl
