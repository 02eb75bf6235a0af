#pragma once
#include <cstdint>

#include "absl/status/statusor.h"

namespace baton::engine::cuda {

// What is left of `utilization` * `total` bytes of a device of which `free` are free now: others
// may use the device too, and what they use counts.
//   kResourceExhausted  nothing; says how much is used and what to change
absl::StatusOr<std::uint64_t> BudgetLeft(std::uint64_t free, std::uint64_t total,
                                         double utilization);

// The same of the current device.
absl::StatusOr<std::uint64_t> DeviceBudgetLeft(double utilization);

}  // namespace baton::engine::cuda
