#include "gpu/status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace baton::gpu {

absl::Status ToStatus(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  // The name of the call without its arguments.
  const std::string name(call.substr(0, call.find('(')));
  const std::string what = absl::StrCat(name, ": ", cudaGetErrorString(error), " (",
                                        cudaGetErrorName(error), ")");
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, "; lower gpu-memory-utilization or free the device"));
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorSystemDriverMismatch:
      return absl::FailedPreconditionError(
          absl::StrCat(what, "; this machine has no usable GPU: install its driver, or choose "
                             "another backend"));
    default:
      return absl::InternalError(what);
  }
}

}  // namespace baton::gpu
