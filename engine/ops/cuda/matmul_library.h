#pragma once
#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cuda/kernels/weight_view.h"
#include "gpu/device_buffer.h"

namespace baton::engine::cuda {

// y = x W^T (+ y) (+ bias) with operands of T and float sums.
struct LibraryProduct {
  const void* w = nullptr;     // [outputs, inputs] of T
  const void* x = nullptr;     // [num_rows, x_stride] of T
  void* y = nullptr;           // [num_rows, y_stride] of T or float
  const void* bias = nullptr;  // [outputs] of y's type, or null
  int num_rows = 0;
  int outputs = 0;
  int inputs = 0;
  int x_stride = 0;
  int y_stride = 0;
  bool float_output = false;
  bool add = false;
};

// cuBLASLt with one algorithm for each shape, chosen at its first use and kept: what is computed
// for a row then depends on the class of rows only. Runs on one stream at a time, since products
// share the workspace. Thread-compatible.
class MatmulLibrary {
 public:
  static absl::StatusOr<std::unique_ptr<MatmulLibrary>> Create(ElementType type,
                                                               std::size_t workspace_bytes);
  ~MatmulLibrary();
  MatmulLibrary(const MatmulLibrary&) = delete;
  MatmulLibrary& operator=(const MatmulLibrary&) = delete;

  // Whether the library has an algorithm for products like `product` of up to `max_rows` rows. On
  // the host only. kInternal, kResourceExhausted: a call of the library failed.
  absl::StatusOr<bool> Has(const LibraryProduct& product, int max_rows);
  // Enqueues it with the algorithm of `max_rows`; Has was true. num_rows <= max_rows.
  absl::Status Run(const LibraryProduct& product, int max_rows, cudaStream_t stream);
  std::size_t device_bytes() const { return workspace_.bytes(); }

 private:
  struct Shape {
    int outputs, inputs, max_rows, x_stride, y_stride;
    bool float_output, has_bias;
    auto operator<=>(const Shape&) const = default;
  };
  struct Plan;
  MatmulLibrary(ElementType type, cublasLtHandle_t handle, gpu::DeviceBuffer workspace);
  absl::StatusOr<Plan*> PlanOf(const LibraryProduct& product, int max_rows);
  absl::Status Choose(const Shape& shape, const void* bias, Plan& plan);

  ElementType type_;
  cublasLtHandle_t handle_;
  gpu::DeviceBuffer workspace_;
  std::map<Shape, std::unique_ptr<Plan>> plans_;
};

}  // namespace baton::engine::cuda
