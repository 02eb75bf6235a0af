#pragma once
#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace baton::gpu {

// OK, or what a CUDA runtime call failed with: its name, CUDA's own words and what to do.
//   kResourceExhausted   no device memory
//   kFailedPrecondition  no device, or no driver for one
//   kInternal            anything else; most errors are sticky and end the use of the device
absl::Status ToStatus(cudaError_t error, std::string_view call);

}  // namespace baton::gpu

// Returns from a function that returns Status or StatusOr when a CUDA runtime call fails.
#define BATON_CUDA_RETURN_IF_ERROR(call)                                        \
  do {                                                                          \
    const cudaError_t baton_cuda_error = (call);                                \
    if (baton_cuda_error != cudaSuccess) {                                      \
      return ::baton::gpu::ToStatus(baton_cuda_error, #call);                   \
    }                                                                           \
  } while (false)
