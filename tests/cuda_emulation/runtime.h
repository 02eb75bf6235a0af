#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "cuda_emulation/controls.h"

// What the other emulated libraries (cuBLASLt, NCCL) need of the runtime. Thread-safe.
namespace cuda_emulation {

// Enqueues `run` in stream order, or captures it when the stream captures. It runs on the stream's
// OS thread, which it may block, with device memory reachable; also when the device has failed,
// which StickyError tells. `kind` is a literal that names it in messages and graph updates.
cudaError_t SubmitToStream(cudaStream_t stream, std::function<void()> run,
                           const char* kind = "library");

// Whether `address` lies in device memory, and whether all of [address, address + bytes) lies in
// one allocation of it.
bool IsDevicePointer(const void* address);
bool IsDeviceRange(const void* address, std::size_t bytes);
// The device of that allocation; -1 where IsDeviceRange is false.
int DeviceOf(const void* address, std::size_t bytes);
// Takes memory of a device without addresses, or gives it back (negative). False: it has no room.
bool AccountDeviceMemory(int device, std::ptrdiff_t bytes);

// The error injected for this call of `call`, if any; uses it up.
std::optional<cudaError_t> TakeFault(const char* call);
// cudaSuccess, or the error that InjectFault or a failed device has for a call named `call`.
cudaError_t EnterCall(const char* call);
// Keeps `why` for LastMessage, prints it when verbose, and returns `error`.
cudaError_t Refuse(cudaError_t error, const std::string& why);
// The device fails as after a kernel's error: `error` answers every later call on it.
void FailDevice(int device, cudaError_t error, const std::string& why);

// What the device failed with, and stays failed with; cudaSuccess while it works.
cudaError_t StickyError(int device);

int CurrentDevice();
// -1 for a handle that is no live stream.
int DeviceOfStream(cudaStream_t stream);

}  // namespace cuda_emulation
