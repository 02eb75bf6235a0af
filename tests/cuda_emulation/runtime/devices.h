#pragma once
#include <cuda_runtime_api.h>

#include <optional>

#include "cuda_emulation/runtime.h"
#include "cuda_emulation/sanitizers.h"

namespace cuda_emulation {

// Begins every function of the runtime: hides the locks it takes from TSan, and tells whether it is
// to fail before it does anything (an injected fault, a failed device, no driver).
class Call {
 public:
  explicit Call(const char* name);
  cudaError_t error() const { return error_; }

 private:
  Quiet quiet_;
  UnseenLocks unseen_;
  cudaError_t error_;
};
#define CUDA_EMULATION_ENTER(name)                     \
  const ::cuda_emulation::Call call_of_runtime(#name); \
  if (call_of_runtime.error() != cudaSuccess) {        \
    return call_of_runtime.error();                    \
  }

// The error of a kernel that starts now on `device`, if one was injected under "kernel".
std::optional<cudaError_t> TakeKernelFault(int device);

}  // namespace cuda_emulation
