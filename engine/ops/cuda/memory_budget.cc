#include "engine/ops/cuda/memory_budget.h"

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/strings/str_format.h"
#include "gpu/status.h"

namespace baton::engine::cuda {

absl::StatusOr<std::uint64_t> BudgetLeft(std::uint64_t free, std::uint64_t total,
                                         double utilization) {
  const auto allowed = static_cast<std::uint64_t>(static_cast<double>(total) * utilization);
  const std::uint64_t used = total - free;
  if (used < allowed) return allowed - used;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "no device memory left for the KV pool: %d of %d bytes are used, gpu-memory-utilization %.2f "
      "allows %d; raise it, choose a smaller model or free the device",
      used, total, utilization, allowed));
}

absl::StatusOr<std::uint64_t> DeviceBudgetLeft(double utilization) {
  std::size_t free = 0, total = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
  return BudgetLeft(free, total, utilization);
}

}  // namespace baton::engine::cuda
