// Kernels: which there are, and their launch.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cuda_emulation/executor/grid.h"
#include "cuda_emulation/kernel_api.h"
#include "cuda_emulation/runtime/devices.h"
#include "cuda_emulation/runtime/memory.h"
#include "cuda_emulation/runtime/properties.h"
#include "cuda_emulation/runtime/stream.h"

namespace cuda_emulation {
namespace {

struct Registered {
  Kernel kernel;
  std::size_t dynamic_limit = kSharedPerBlock;
};
struct Registry {
  std::mutex mutex;
  std::map<const void*, Registered> kernels;
};
Registry& TheRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

std::optional<Registered> FindKernel(const void* address) {
  const std::lock_guard lock(TheRegistry().mutex);
  const auto at = TheRegistry().kernels.find(address);
  if (at == TheRegistry().kernels.end()) return std::nullopt;
  return at->second;
}

std::string Describe(const dim3& size) {
  return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
}

// What a device refuses, and the project's own rule: blocks are one-dimensional, of whole warps.
cudaError_t CheckShape(const cudaLaunchConfig_t& config, const Registered& kernel) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  const std::string name = std::string("launch of ") + kernel.kernel.name + ": ";
  if (grid.x == 0 || grid.x > 0x7fffffffu || grid.y == 0 || grid.y > 65535 || grid.z == 0 ||
      grid.z > 65535) {
    return Refuse(cudaErrorInvalidConfiguration, name + "grid of " + Describe(grid));
  }
  if (block.x == 0 || block.x > 1024 || block.x % 32 != 0 || block.y != 1 || block.z != 1) {
    return Refuse(cudaErrorInvalidConfiguration,
                  name + "block of " + Describe(block) +
                      " threads; must be 1-D, a multiple of 32 up to 1024");
  }
  if (config.dynamicSmemBytes > kernel.dynamic_limit) {
    return Refuse(cudaErrorInvalidValue, name + std::to_string(config.dynamicSmemBytes) +
                                             " bytes of dynamic shared memory, limit " +
                                             std::to_string(kernel.dynamic_limit) +
                                             "; AllowSharedMemory raises it to 227 KiB");
  }
  if (kernel.kernel.parameter_bytes > kMaxParameterBytes) {
    return Refuse(cudaErrorInvalidValue, name + "more than 4 KiB of parameters");
  }
  if (config.numAttrs != 0) {
    return Refuse(cudaErrorNotSupported, name + "launch attributes are not emulated");
  }
  return cudaSuccess;
}

void RunKernel(const GridSpec& spec, int device) {
  if (const auto fault = TakeKernelFault(device); fault.has_value()) {
    FailDevice(device, *fault, std::string(spec.name) + ": fails, as injected");
    return;
  }
  const DeviceAccess access;
  const GridResult result = RunGrid(spec);
  if (result.error != cudaSuccess) FailDevice(device, result.error, result.message);
}

}  // namespace

void RegisterKernel(const void* address, const Kernel& kernel) {
  Quiet quiet;
  UnseenLocks unseen;
  const std::lock_guard lock(TheRegistry().mutex);
  TheRegistry().kernels.try_emplace(address, Registered{kernel});
}

}  // namespace cuda_emulation

using cuda_emulation::CheckStream;
using cuda_emulation::Refuse;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  CUDA_EMULATION_ENTER(cudaFuncSetAttribute);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return Refuse(cudaErrorInvalidValue, "cudaFuncSetAttribute: attribute " +
                                             std::to_string(attribute) + " is not emulated");
  }
  if (value < 0 || static_cast<std::size_t>(value) > cuda_emulation::kSharedPerBlockOptIn) {
    return Refuse(cudaErrorInvalidValue,
                  "cudaFuncSetAttribute: " + std::to_string(value) +
                      " bytes of dynamic shared memory; a block has 227 KiB");
  }
  auto& registry = cuda_emulation::TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto at = registry.kernels.find(kernel);
  if (at == registry.kernels.end()) {
    return Refuse(cudaErrorInvalidDeviceFunction, "cudaFuncSetAttribute: unknown kernel");
  }
  at->second.dynamic_limit = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, std::size_t dynamic_bytes) {
  CUDA_EMULATION_ENTER(cudaOccupancyMaxActiveBlocksPerMultiprocessor);
  if (!cuda_emulation::FindKernel(kernel).has_value() || threads <= 0 || threads > 1024) {
    return Refuse(cudaErrorInvalidValue, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  }
  const std::size_t shared = dynamic_bytes + cuda_emulation::kSharedReservedPerBlock;
  *blocks = std::min({cuda_emulation::kBlocksPerMultiprocessor,
                      cuda_emulation::kThreadsPerMultiprocessor / threads,
                      static_cast<int>(cuda_emulation::kSharedPerMultiprocessor / shared)});
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* address,
                                void** arguments) {
  CUDA_EMULATION_ENTER(cudaLaunchKernelExC);
  const auto kernel = cuda_emulation::FindKernel(address);
  if (!kernel.has_value()) {
    return Refuse(cudaErrorInvalidDeviceFunction, "cudaLaunchKernelExC: unknown kernel");
  }
  if (const cudaError_t error = CheckStream(config->stream, kernel->kernel.name);
      error != cudaSuccess) {
    return error;
  }
  const int device = config->stream->queue->device();
  if (device != cuda_emulation::CurrentDevice()) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  std::string("launch of ") + kernel->kernel.name + " on a stream of device " +
                      std::to_string(device) + " while device " +
                      std::to_string(cuda_emulation::CurrentDevice()) + " is current");
  }
  if (const cudaError_t error = cuda_emulation::CheckShape(*config, *kernel);
      error != cudaSuccess) {
    return error;
  }
  cuda_emulation::GridSpec spec{.grid = config->gridDim,
                                .block = config->blockDim,
                                .dynamic_shared_bytes = config->dynamicSmemBytes,
                                .name = kernel->kernel.name};
  spec.body = [invoke = kernel->kernel.invoke, address,
               copied = kernel->kernel.copy_arguments(arguments)] {
    invoke(address, copied.get());
  };
  auto operation = std::make_unique<cuda_emulation::Operation>();
  operation->kind = "kernel";
  operation->subject = address;
  operation->run = [spec = std::move(spec), device] { cuda_emulation::RunKernel(spec, device); };
  return cuda_emulation::Submit(config->stream, std::move(operation));
}

}  // extern "C"
