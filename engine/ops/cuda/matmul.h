#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/cuda/cuda_weights.h"
#include "engine/ops/cuda/device_matrix.h"
#include "engine/ops/cuda/kernels/weight_view.h"

namespace baton::engine::cuda {

struct MatmulOptions {
  ElementType type = ElementType::kBF16;
  // For cuBLASLt's algorithms.
  std::size_t workspace_bytes = std::size_t{32} << 20;
  // For quantized weights as T: a piece of a matrix at a time. Fits the level-2 cache of an H100
  // (50 MB), so that the piece is read back from there.
  std::size_t scratch_bytes = std::size_t{32} << 20;
  // Computes every product with the own tensor-core kernel: a row's result then depends on the row
  // alone, not on its class. Slower for few rows and for many.
  bool one_class = false;
};

// y = x W^T.
struct Product {
  const void* x = nullptr;  // [num_rows, columns of W] of T, 16-byte aligned
  int x_stride = 0;         // elements between rows, a multiple of 8; 0: columns of W
  int num_rows = 0;
  void* y = nullptr;  // [num_rows, rows of W] of T or float, 16-byte aligned
  int y_stride = 0;   // 0: rows of W
  bool float_output = false;
  bool add = false;       // y += x W^T
  bool add_bias = false;  // where the map has one; float output only
};

// The same for the experts of a layer. Pairs (row, expert) are sorted by expert; those of expert e
// are [offsets[e], offsets[e + 1]), on the device, so that the host need not know how many.
struct ExpertProduct {
  const void* x = nullptr;  // [*, columns] of T
  int x_stride = 0;         // as in Product
  // [num_pairs] on the device: the row of x that each pair reads; null: pair p reads row p.
  const int* pair_rows = nullptr;
  const int* offsets = nullptr;  // [num_experts + 1] on the device
  int num_pairs = 0;             // offsets[num_experts] is at most this
  void* y = nullptr;             // [num_pairs, rows_per_expert]
  int y_stride = 0;              // 0: rows_per_expert
  bool float_output = false;     // biases of experts are the following kernels' to add
};

// Which kernel computes a product of `num_rows` rows. Inside a class a row's result does not
// depend, in any bit, on the number of rows or on the other rows.
//   kFewRows       dense 1..4, quantized 1..8: own kernel, weights read once, no tensor cores
//   kTile          quantized 9..64: own tensor-core kernel that unpacks weights on its way
//   kLibrary       the rest: cuBLASLt, quantized weights unpacked to T before. A class of its own
//                  for up to 16, 32, 64, ... 8192 rows: the algorithm is chosen once for the
//                  largest number of rows in it; more rows are computed 8192 at a time
struct RowClass {
  enum class Kernel : std::uint8_t { kFewRows, kTile, kLibrary };
  Kernel kernel = Kernel::kLibrary;
  int max_rows = 0;  // the largest number of rows of the class
  bool operator==(const RowClass&) const = default;
};
RowClass ClassOf(WeightFormat format, int num_rows);

// All matrix products of the backend. Owns a cuBLASLt handle, its workspace and scratch memory, so
// products of one object run on one stream at a time. Enqueues and returns: no wait and no
// allocation on the device, also while a graph is captured. Thread-compatible; belongs to the
// device that was current at Create.
class Matmul {
 public:
  // kResourceExhausted, or kInternal when the library cannot start.
  static absl::StatusOr<std::unique_ptr<Matmul>> Create(const MatmulOptions& options);
  ~Matmul();

  // Chooses the library's algorithms for products like `product` (its strides and kind of output
  // count) of up to `max_rows` rows, which otherwise happens at the first use: below a millisecond
  // each, on the host only. Where the library has none, the own kernel takes its place.
  absl::Status Prepare(const DeviceLinear& linear, const Product& product, int max_rows);
  //   kInvalidArgument  shapes or alignment; kInternal: a launch failed
  absl::Status Multiply(const DeviceLinear& linear, const Product& product, cudaStream_t stream);
  // One matrix without bias.
  absl::Status Multiply(const DeviceMatrix& matrix, const Product& product, cudaStream_t stream);
  // One kernel for all numbers of pairs: a pair's result never depends on the others.
  absl::Status MultiplyExperts(const ExpertLinear& experts, const ExpertProduct& product,
                               cudaStream_t stream);
  std::size_t device_bytes() const;

 private:
  class Impl;
  explicit Matmul(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::engine::cuda
