#include "gpu/nccl_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace baton::gpu {

absl::Status ToStatus(ncclResult_t result, ncclComm_t comm, std::string_view call) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const std::string name(call.substr(0, call.find('(')));
  const char* const more = ncclGetLastError(comm);
  const std::string text =
      absl::StrCat(name, " failed: ", ncclGetErrorString(result), " (", static_cast<int>(result),
                   ")", more == nullptr || *more == '\0' ? "" : ": ", more == nullptr ? "" : more);
  switch (result) {
    case ncclRemoteError:
      return absl::UnavailableError(text);
    case ncclUnhandledCudaError:
      return absl::ResourceExhaustedError(
          absl::StrCat(text, "; leave more device memory free, or allow fewer NCCL communicators"));
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::FailedPreconditionError(text);
    default:
      return absl::InternalError(absl::StrCat(text, "; NCCL_DEBUG=WARN tells more"));
  }
}

}  // namespace baton::gpu
