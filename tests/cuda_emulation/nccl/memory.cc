#include <cuda_runtime_api.h>

#include <mutex>

#include "cuda_emulation/nccl/communicator.h"
#include "cuda_emulation/runtime.h"

// Memory of NCCL's making, and buffers registered for zero-copy transfers, which the emulation only
// keeps account of.
using cuda_emulation::nccl::Entry;

extern "C" {

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  BATON_NCCL_FAULT(ncclMemAlloc);
  return cudaMalloc(data, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* data) {
  BATON_NCCL_FAULT(ncclMemFree);
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t bytes, void** handle) {
  BATON_NCCL_FAULT(ncclCommRegister);
  if (comm == nullptr) return ncclInvalidArgument;
  const Entry entry(comm);
  if (!entry.ok()) return ncclInvalidUsage;
  if (cuda_emulation::DeviceOf(data, bytes) != comm->device) return ncclInvalidArgument;
  if (!comm->registered.insert(data).second) return ncclInvalidUsage;
  *handle = data;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  BATON_NCCL_FAULT(ncclCommDeregister);
  if (comm == nullptr) return ncclInvalidArgument;
  const Entry entry(comm);
  if (!entry.ok()) return ncclInvalidUsage;
  return comm->registered.erase(handle) == 1 ? ncclSuccess : ncclInvalidArgument;
}

}  // extern "C"
