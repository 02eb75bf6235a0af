#pragma once
#include "absl/status/statusor.h"
#include "checkpoint/tensor.h"
#include "engine/ops/cuda/device_matrix.h"
#include "gpu/device_buffer.h"

namespace baton::bench {

// Weights of a normal distribution on the device, bf16. The values matter: zeros draw less power.
absl::StatusOr<engine::cuda::DeviceMatrix> RandomDenseMatrix(int rows, int columns);
// The same of a quantized type, with random blocks.
absl::StatusOr<engine::cuda::DeviceMatrix> RandomQuantizedMatrix(checkpoint::DType dtype, int rows,
                                                                 int columns);
// bf16 activations [rows, columns] on the device.
absl::StatusOr<gpu::DeviceBuffer> RandomActivations(int rows, int columns);
// floats [count] on the device.
absl::StatusOr<gpu::DeviceBuffer> RandomFloats(std::size_t count);

}  // namespace baton::bench
