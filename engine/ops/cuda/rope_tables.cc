#include "engine/ops/cuda/rope_tables.h"

#include <cstddef>
#include <utility>

#include "common/status.h"
#include "gpu/status.h"

namespace baton::engine::cuda {
namespace {

absl::StatusOr<gpu::DeviceBuffer> ToDevice(const std::vector<double>& values) {
  const std::size_t bytes = values.size() * sizeof(double);
  BATON_ASSIGN_OR_RETURN(gpu::DeviceBuffer buffer, gpu::DeviceBuffer::Create(bytes));
  if (bytes == 0) return buffer;
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemcpy(buffer.data(), values.data(), bytes, cudaMemcpyHostToDevice));
  return buffer;
}

}  // namespace

absl::StatusOr<RopeTables> RopeTables::Create(std::span<const Rope> ropes, int max_rows) {
  RopeTables tables;
  for (const Rope& rope : ropes) {
    Table& table = tables.ropes_.emplace_back();
    BATON_ASSIGN_OR_RETURN(table.frequencies, ToDevice(rope.frequencies));
    BATON_ASSIGN_OR_RETURN(table.long_frequencies, ToDevice(rope.long_frequencies));
    const std::size_t bytes = static_cast<std::size_t>(max_rows) * (rope.dim / 2) * sizeof(float);
    BATON_ASSIGN_OR_RETURN(table.cos, gpu::DeviceBuffer::Create(bytes));
    BATON_ASSIGN_OR_RETURN(table.sin, gpu::DeviceBuffer::Create(bytes));
    table.rope = {.dim = rope.dim,
                  .magnitude = rope.magnitude,
                  .short_length = rope.short_length,
                  .frequencies = table.frequencies.as<const double>(),
                  .long_frequencies = table.long_frequencies.as<const double>(),
                  .theta = rope.theta,
                  .factor = rope.factor};
  }
  return tables;
}

absl::Status RopeTables::Compute(const StepBuffers& step, cudaStream_t stream) const {
  const DeviceBatch batch = step.batch();
  for (const Table& table : ropes_) {
    BATON_CUDA_RETURN_IF_ERROR(ComputeRopeAngles(table.rope, batch.positions, step.text_lengths(),
                                                 batch.num_rows, table.cos.as<float>(),
                                                 table.sin.as<float>(), stream));
  }
  return absl::OkStatus();
}

}  // namespace baton::engine::cuda
