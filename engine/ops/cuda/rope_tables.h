#pragma once
#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/rope.h"
#include "engine/ops/cuda/kernels/rope_angles.h"
#include "engine/ops/cuda/step_buffers.h"
#include "gpu/device_buffer.h"

namespace baton::engine::cuda {

// The ropes of a model on the device, and the angles of a step's rows.
class RopeTables {
 public:
  static absl::StatusOr<RopeTables> Create(std::span<const Rope> ropes, int max_rows);

  // Enqueues the angles of the rows of `step`.
  absl::Status Compute(const StepBuffers& step, cudaStream_t stream) const;
  // Device memory, [num_rows, dim / 2].
  const float* cos(int rope) const { return ropes_[rope].cos.as<const float>(); }
  const float* sin(int rope) const { return ropes_[rope].sin.as<const float>(); }

 private:
  struct Table {
    DeviceRope rope{};
    gpu::DeviceBuffer frequencies, long_frequencies, cos, sin;
  };
  std::vector<Table> ropes_;
};

}  // namespace baton::engine::cuda
