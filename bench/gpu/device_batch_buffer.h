#pragma once
#include "absl/status/statusor.h"
#include "engine/ops/cuda/kernels/device_batch.h"
#include "gpu/device_buffer.h"

namespace baton::bench {

// A batch of equal sequences on the device, each with blocks of its own in order.
class DeviceBatchBuffer {
 public:
  // `num_sequences` of `rows` rows each that begin at position `start`.
  static absl::StatusOr<DeviceBatchBuffer> Create(int num_sequences, int rows, int start,
                                                  int block_size);
  const engine::cuda::DeviceBatch& view() const { return view_; }
  int num_blocks() const { return view_.max_blocks * view_.num_sequences; }

 private:
  gpu::DeviceBuffer buffer_;
  engine::cuda::DeviceBatch view_{};
};

}  // namespace baton::bench
