#pragma once
#include <nccl.h>

#include <string_view>

#include "absl/status/status.h"

namespace baton::gpu {

// OK for ncclSuccess and ncclInProgress, else what an NCCL call failed with, in NCCL's own words.
// `comm` may be null.
//   kUnavailable         the peer is gone
//   kResourceExhausted   CUDA refused: usually no device memory
//   kFailedPrecondition  the two ends do not match, or NCCL was used wrongly
//   kInternal            anything else
absl::Status ToStatus(ncclResult_t result, ncclComm_t comm, std::string_view call);

}  // namespace baton::gpu

#define BATON_NCCL_RETURN_IF_ERROR(comm, call)                                            \
  do {                                                                                    \
    const absl::Status baton_nccl_status = ::baton::gpu::ToStatus((call), (comm), #call); \
    if (!baton_nccl_status.ok()) return baton_nccl_status;                                \
  } while (false)
