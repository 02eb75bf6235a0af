#include "cuda_emulation/runtime/properties.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>

#include "cuda_emulation/options.h"
#include "cuda_emulation/runtime/devices.h"

using cuda_emulation::Refuse;
using cuda_emulation::TheOptions;
namespace emulated = cuda_emulation;

namespace {

cudaError_t CheckDevice(int device) {
  if (device >= 0 && device < TheOptions().devices) return cudaSuccess;
  return Refuse(cudaErrorInvalidDevice, "there is no device " + std::to_string(device));
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  CUDA_EMULATION_ENTER(cudaGetDeviceProperties);
  if (const cudaError_t error = CheckDevice(device); error != cudaSuccess) return error;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Host emulation of sm_90");
  properties->major = emulated::kMajor;
  properties->minor = emulated::kMinor;
  properties->multiProcessorCount = TheOptions().multiprocessors;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = emulated::kThreadsPerMultiprocessor;
  properties->maxBlocksPerMultiProcessor = emulated::kBlocksPerMultiprocessor;
  properties->totalGlobalMem = TheOptions().memory_bytes;
  properties->sharedMemPerBlock = emulated::kSharedPerBlock;
  properties->sharedMemPerBlockOptin = emulated::kSharedPerBlockOptIn;
  properties->sharedMemPerMultiprocessor = emulated::kSharedPerMultiprocessor;
  properties->reservedSharedMemPerBlock = emulated::kSharedReservedPerBlock;
  properties->regsPerBlock = 65536;
  properties->regsPerMultiprocessor = 65536;
  properties->l2CacheSize = emulated::kL2Bytes;
  properties->unifiedAddressing = 1;
  properties->concurrentKernels = 1;
  properties->asyncEngineCount = 3;
  properties->memoryBusWidth = 5120;
  properties->pciBusID = 1 + device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  CUDA_EMULATION_ENTER(cudaDeviceGetAttribute);
  if (const cudaError_t error = CheckDevice(device); error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = 32;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = TheOptions().multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = emulated::kThreadsPerMultiprocessor;
      return cudaSuccess;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = emulated::kBlocksPerMultiprocessor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(emulated::kSharedPerBlock);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(emulated::kSharedPerBlockOptIn);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(emulated::kSharedPerMultiprocessor);
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = emulated::kL2Bytes;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = emulated::kMajor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = emulated::kMinor;
      return cudaSuccess;
    default:
      return Refuse(cudaErrorInvalidValue, "cudaDeviceGetAttribute: attribute " +
                                               std::to_string(attribute) +
                                               " is not emulated; add it to runtime/properties.cc");
  }
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  CUDA_EMULATION_ENTER(cudaDeviceGetPCIBusId);
  if (const cudaError_t error = CheckDevice(device); error != cudaSuccess) return error;
  std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02X:00.0", 1 + device);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// 0 without a driver, as the real one says it.
cudaError_t cudaDriverGetVersion(int* version) {
  *version = TheOptions().has_driver ? CUDART_VERSION : 0;
  return cudaSuccess;
}

}  // extern "C"
