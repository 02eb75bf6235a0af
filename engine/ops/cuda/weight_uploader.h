#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/cuda/kernels/weight_view.h"
#include "gpu/device_buffer.h"
#include "gpu/stream.h"

namespace baton::engine::cuda {

// Brings bytes that are made on the host to the device through two pieces of pinned memory: while
// one is copied, the other is filled. Thread-compatible.
class WeightUploader {
 public:
  // `type`: what dense weights become. kResourceExhausted when there is no pinned memory.
  static absl::StatusOr<std::unique_ptr<WeightUploader>> Create(
      ElementType type, std::size_t piece_bytes = std::size_t{8} << 20);
  ~WeightUploader();

  using Fill = std::function<void(int first, int number, std::byte* out)>;

  // Copies `count` items of `item_bytes` to device memory `to`. `fill(first, number, out)` writes
  // items [first, first + number) to host memory `out`; it is called in order.
  //   kInvalidArgument   an item is larger than a piece
  //   kDeadlineExceeded  the device does not take the bytes
  absl::Status Upload(std::byte* to, int count, std::size_t item_bytes, const Fill& fill);
  // Uploads at most 2^31 - 1 bytes as they are.
  absl::Status Copy(std::byte* to, std::span<const std::byte> values);
  // Waits until everything has arrived.
  absl::Status Finish();

  ElementType type() const { return type_; }

 private:
  struct Piece {
    gpu::PinnedBuffer memory;
    gpu::Event copied;
    bool in_use = false;  // a copy out of it may be under way
  };
  explicit WeightUploader(ElementType type) : type_(type) {}
  absl::Status Await(Piece& piece);

  ElementType type_;
  gpu::Stream stream_;
  Piece pieces_[2];
  int next_ = 0;
};

}  // namespace baton::engine::cuda
