#include <chrono>
#include <string>
#include <thread>

#include "cuda_emulation/nccl/bootstrap.h"
#include "cuda_emulation/nccl/controls.h"
#include "cuda_emulation/nccl/group.h"

// Making, ending and asking communicators.
namespace cuda_emulation::nccl {
namespace {

constexpr int kDefaultChannels = 16;

ncclComm* NewComm(int size, int rank, const ncclConfig_t* config) {
  const bool blocking = config == nullptr || config->blocking != 0;
  const bool limited = config != nullptr && config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  return new ncclComm(rank, size, blocking, limited ? config->maxCTAs : kDefaultChannels);
}

void HangIfAsked() {
  while (GlobalNcclOptions().abort_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

bool GraphsReferTo(ncclComm* comm) {
  if (comm->graph_token.use_count() == 1) return false;
  comm->Refuse("graphs refer to the communicator: destroy them first");
  return true;
}

void EndOf(ncclComm* comm) {
  comm->AwaitIdle();
  delete comm;
}

}  // namespace
}  // namespace cuda_emulation::nccl

using namespace cuda_emulation::nccl;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const char* const kNames[] = {
      "no error",         "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",        "a peer is gone",         "in progress"};
  return result >= 0 && result < ncclNumResults ? kNames[result] : "unknown result";
}

const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string copy;
  if (comm == nullptr) return "";
  std::lock_guard lock(comm->mutex);
  copy = comm->last_error;
  return copy.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  BATON_NCCL_FAULT(ncclGetUniqueId);
  return MakeUniqueId(id);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  BATON_NCCL_FAULT(ncclCommInitRankConfig);
  const auto read = ReadUniqueId(id);
  const bool valid_config = config == nullptr || config->magic == 0xcafebeef;
  if (!read || size < 1 || rank < 0 || rank >= size || !valid_config) return ncclInvalidArgument;
  ncclComm* comm = NewComm(size, rank, config);
  *out = comm;
  if (comm->blocking && !InGroup()) {
    const ncclResult_t result = Bootstrap(comm, *read);
    if (result == ncclSuccess) return result;
    delete comm;
    *out = nullptr;
    return result;
  }
  comm->background = std::thread([comm, id = *read] { Bootstrap(comm, id); });
  if (!InGroup()) return ncclInProgress;
  AwaitAtGroupEnd(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* out, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, size, id, rank, nullptr);
}

ncclResult_t ncclCommInitAll(ncclComm_t* out, int num_devices, const int* devices) {
  BATON_NCCL_FAULT(ncclCommInitAll);
  ncclUniqueId id;
  if (const ncclResult_t made = MakeUniqueId(&id); made != ncclSuccess) return made;
  int current = 0;
  cudaGetDevice(&current);
  ncclGroupStart();
  for (int rank = 0; rank < num_devices; ++rank) {
    if (cudaSetDevice(devices == nullptr ? rank : devices[rank]) == cudaSuccess) {
      ncclCommInitRank(&out[rank], num_devices, id, rank);
    }
  }
  cudaSetDevice(current);
  return ncclGroupEnd();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  BATON_NCCL_FAULT(ncclCommGetAsyncError);
  if (comm == nullptr) return ncclInvalidArgument;
  *result = comm->async_error();
  if (*result == ncclInProgress && comm->connect_polls > 0 && --comm->connect_polls == 0) {
    int expected = ncclInProgress;
    comm->state.compare_exchange_strong(expected, ncclSuccess);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  BATON_NCCL_FAULT(ncclCommFinalize);
  if (const ncclResult_t usable = CheckUsable(comm); usable != ncclSuccess) return usable;
  const Entry entry(comm);
  if (!entry.ok()) return ncclInvalidUsage;
  comm->finalized = true;
  if (comm->blocking) {
    comm->AwaitIdle();
    return comm->async_error();
  }
  if (comm->background.joinable()) comm->background.join();
  comm->state = ncclInProgress;
  comm->background = std::thread([comm] {
    comm->AwaitIdle();
    int expected = ncclInProgress;
    comm->state.compare_exchange_strong(expected, ncclSuccess);
  });
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  BATON_NCCL_FAULT(ncclCommDestroy);
  if (comm == nullptr) return ncclSuccess;
  {
    const Entry entry(comm);
    if (!entry.ok() || GraphsReferTo(comm)) return ncclInvalidUsage;
    if (!comm->registered.empty()) {
      comm->Refuse("buffers are still registered: deregister them first");
      return ncclInvalidUsage;
    }
    if (comm->async_error() == ncclInProgress && !comm->finalized && !comm->revoked) {
      comm->Refuse("the communicator is still in progress: abort it");
      return ncclInvalidUsage;
    }
    const ncclResult_t state = comm->async_error();
    if (state != ncclSuccess && state != ncclInProgress) {
      comm->aborted = true;
      comm->Stop();
    }
  }
  EndOf(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  BATON_NCCL_FAULT(ncclCommAbort);
  if (comm == nullptr) return ncclSuccess;
  {
    const Entry entry(comm);
    if (!entry.ok() || GraphsReferTo(comm)) return ncclInvalidUsage;
    HangIfAsked();
    comm->aborted = true;
    comm->Stop();
  }
  EndOf(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  BATON_NCCL_FAULT(ncclCommRevoke);
  if (comm == nullptr || flags != NCCL_REVOKE_DEFAULT) return ncclInvalidArgument;
  const Entry entry(comm);
  if (!entry.ok() || comm->finalized) return ncclInvalidUsage;
  HangIfAsked();
  comm->revoked = true;
  comm->Stop();
  if (comm->background.joinable()) comm->background.join();
  comm->state = ncclInProgress;
  const auto quiesce = [comm] {
    comm->AwaitIdle();
    comm->wake.Clear();
    comm->state = ncclSuccess;
  };
  if (comm->blocking) {
    quiesce();
    return ncclSuccess;
  }
  comm->background = std::thread(quiesce);
  return ncclInProgress;
}

}  // extern "C"
