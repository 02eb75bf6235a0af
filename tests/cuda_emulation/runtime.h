// Test-only controls of the emulated CUDA runtime.
#pragma once
#include <cuda_runtime_api.h>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
namespace cuda_emulation {
struct Fault { std::string call; cudaError_t error; int after = 0, times = 1; bool sticky = false; };
void InjectFault(Fault f);
void ClearFaults();
void ResetDeviceForTest();
std::string LastKernelMessage();
std::size_t LiveAllocations();
cudaError_t SubmitToStream(cudaStream_t s, std::function<void()> op);
bool IsDevicePointer(const void* p);
// For the emulated libraries. The error injected for this call of `call`, if any; uses it up.
std::optional<cudaError_t> TakeFault(const char* call);
// The device in whose memory all of [p, p + bytes) lies; -1: in none's.
int DeviceOf(const void* p, std::size_t bytes);
// Takes memory of a device without addresses, or gives it back (negative). False: it has no room.
bool AccountDeviceMemory(int device, std::ptrdiff_t bytes);
}
