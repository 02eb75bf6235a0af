// Test-only controls of the emulated CUDA runtime.
#pragma once
#include <cuda_runtime_api.h>
#include <functional>
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
}
