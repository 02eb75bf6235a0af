#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/tensor.h"
#include "common/tensor_parallel.h"
#include "engine/ops/cuda/kernels/weight_view.h"
#include "engine/ops/cuda/weight_uploader.h"
#include "gpu/device_buffer.h"

namespace baton::engine::cuda {

// A part of a checkpoint's matrix: rows [rows.begin, rows.end) of columns [columns.begin,
// columns.end), counted in inputs, also where the tensor has a column order.
struct MatrixSlice {
  const checkpoint::Tensor* tensor = nullptr;  // not owned
  IndexRange rows;
  IndexRange columns;
  // All of it.
  static MatrixSlice Whole(const checkpoint::Tensor& tensor);
};

// A weight matrix in device memory. Q8_0 stays int8, Q4_0, Q4_1 and the 4-bit codes of AWQ and GPTQ
// stay int4; everything else is rounded to T. Values of quantized matrices are exactly the
// checkpoint's. Immutable, so thread-safe. Move-only.
class DeviceMatrix {
 public:
  // The form that a tensor is kept in. Dense is possible for each.
  static WeightFormat FormatOf(const checkpoint::Tensor& tensor);
  // Whether the slices can be stacked in one quantized matrix: one quantized format and one column
  // order, and, where there is an order, all columns of each, since those of a slice are scattered.
  static bool SameQuantizedForm(std::span<const MatrixSlice> slices);

  // Uploads the slices, stacked along the rows in their order, all of as many columns: quantized
  // where SameQuantizedForm holds, else, or when `dense`, as T. Waits for the copies. On the host
  // there is never more of it than a row and the uploader's pieces.
  //   kInvalidArgument    slices out of range or of unequal widths; columns that cut a group of
  //                       quantized weights, or are no multiple of 8; a row longer than a piece
  //   kResourceExhausted  the device has no room
  static absl::StatusOr<DeviceMatrix> Upload(std::span<const MatrixSlice> slices, bool dense,
                                             WeightUploader& uploader);

  DeviceMatrix() = default;
  DeviceMatrix(DeviceMatrix&&) noexcept = default;
  DeviceMatrix& operator=(DeviceMatrix&&) noexcept = default;

  const WeightView& view() const { return view_; }
  int rows() const { return view_.rows; }
  int columns() const { return view_.columns; }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  static absl::Status UploadRows(const MatrixSlice& slice, const WeightView& view, int first_row,
                                 WeightUploader& uploader);
  gpu::DeviceBuffer buffer_;  // weights, scales, column order
  WeightView view_;
};

}  // namespace baton::engine::cuda
