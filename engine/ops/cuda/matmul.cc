#include "engine/ops/cuda/matmul.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "engine/ops/cuda/kernels/dequantize.h"
#include "engine/ops/cuda/kernels/grouped_matmul.h"
#include "engine/ops/cuda/kernels/quantized_matmul.h"
#include "engine/ops/cuda/matmul_library.h"
#include "gpu/status.h"

namespace baton::engine::cuda {
namespace {

// Where one way of computing takes over from another. Reasoned, not measured on a device. Dense:
// the library's smallest tiles are 16 rows or so, whose first four cost it no less than a kernel
// that only streams the weights. Quantized: up to 8 rows the weights' bytes are the limit; up to 64
// a tensor-core kernel that reads the packed weights once moves a fifth of the bytes that unpacking
// to memory and reading back does; beyond, the library's arithmetic wins.
constexpr int kFewDenseRows = 4;
constexpr int kTileRows = 64;
constexpr int kSmallestClass = 16;
constexpr int kLargestClass = 8192;

// Rows of quantized weights that are unpacked at a time are a multiple of this, the largest tile of
// the library's kernels.
constexpr int kRowsUnit = 128;

}  // namespace

RowClass ClassOf(WeightFormat format, int num_rows) {
  const bool dense = format == WeightFormat::kDense;
  const int few = dense ? kFewDenseRows : kMaxFewRows;
  if (num_rows <= few) return {RowClass::Kernel::kFewRows, few};
  if (!dense && num_rows <= kTileRows) return {RowClass::Kernel::kTile, kTileRows};
  const auto rows = static_cast<unsigned>(std::clamp(num_rows, kSmallestClass, kLargestClass));
  return {RowClass::Kernel::kLibrary, static_cast<int>(std::bit_ceil(rows))};
}

class Matmul::Impl {
 public:
  Impl(const MatmulOptions& options, std::unique_ptr<MatmulLibrary> library,
       gpu::DeviceBuffer scratch)
      : options_(options), library_(std::move(library)), scratch_(std::move(scratch)) {}

  // Rows of `weights` that fit the scratch memory as T.
  int RowsAtATime(const WeightView& weights) const {
    if (!weights.quantized()) return weights.rows;
    const auto fit = scratch_.bytes() / (std::size_t{2} * weights.columns);
    return static_cast<int>(std::min<std::size_t>(fit, weights.rows)) == weights.rows
               ? weights.rows
               : static_cast<int>(fit) / kRowsUnit * kRowsUnit;
  }

  absl::Status Check(const WeightView& weights, const Product& product) const {
    const auto aligned = [](const void* p) {
      return p != nullptr && reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
    };
    if (product.num_rows < 0 || product.x_stride % 8 != 0 || product.x_stride < weights.columns ||
        product.y_stride < weights.rows || !aligned(product.x) || !aligned(product.y) ||
        (product.add_bias && !product.float_output) || weights.type != options_.type) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "product misshapen: %d rows of %d x %d weights, strides %d and %d; strides of inputs are "
          "multiples of 8 and pointers of 16 bytes, a bias needs float outputs",
          product.num_rows, weights.rows, weights.columns, product.x_stride, product.y_stride));
    }
    if (RowsAtATime(weights) == 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "scratch memory too small: %d bytes, need %d to unpack %d rows of %d weights; raise it",
          scratch_.bytes(), std::size_t{2} * kRowsUnit * weights.columns, kRowsUnit,
          weights.columns));
    }
    return absl::OkStatus();
  }

  // One matrix; strides are set. `bias` of y's type, or null.
  absl::Status Multiply(const WeightView& weights, const Product& product, const float* bias,
                        cudaStream_t stream) {
    BATON_RETURN_IF_ERROR(Check(weights, product));
    if (product.num_rows == 0) return absl::OkStatus();
    if (options_.one_class) return Tiles(weights, product, bias, stream);
    const RowClass row_class = ClassOf(weights.format, product.num_rows);
    switch (row_class.kernel) {
      case RowClass::Kernel::kFewRows:
        BATON_CUDA_RETURN_IF_ERROR(FewRowsMatmul({.weights = weights,
                                                  .x = product.x,
                                                  .x_stride = product.x_stride,
                                                  .num_rows = product.num_rows,
                                                  .bias = bias,
                                                  .y = product.y,
                                                  .y_stride = product.y_stride,
                                                  .float_output = product.float_output,
                                                  .add = product.add},
                                                 stream));
        return absl::OkStatus();
      case RowClass::Kernel::kTile:
        return Tiles(weights, product, bias, stream);
      case RowClass::Kernel::kLibrary:
        return Library(weights, product, bias, row_class.max_rows, stream);
    }
    return absl::InternalError("unknown kind of product");
  }

  // Chooses the algorithms of the classes of up to max_rows rows.
  absl::Status Prepare(const WeightView& weights, const Product& product, bool has_bias,
                       int max_rows) {
    BATON_RETURN_IF_ERROR(Check(weights, product));
    if (options_.one_class) return absl::OkStatus();
    for (int rows = kSmallestClass;; rows *= 2) {
      const RowClass row_class = ClassOf(weights.format, rows);
      if (row_class.kernel == RowClass::Kernel::kLibrary) {
        const int step = RowsAtATime(weights);
        for (const int count : {step, weights.rows % step}) {
          if (count == 0) continue;
          LibraryProduct part = PartOf(weights, product, nullptr, 0, count);
          if (has_bias) part.bias = product.y;  // which one makes no difference to the choice
          BATON_RETURN_IF_ERROR(library_->Has(part, row_class.max_rows).status());
        }
      }
      if (rows >= max_rows || rows >= kLargestClass) return absl::OkStatus();
    }
  }

  absl::Status MultiplyExperts(const ExpertLinear& experts, const ExpertProduct& product,
                               cudaStream_t stream) {
    const WeightView& weights = experts.linear.parts.front().view();
    BATON_CUDA_RETURN_IF_ERROR(GroupedMatmul(
        {.weights = weights,
         .num_groups = experts.num_experts,
         .rows_per_group = experts.rows_per_expert,
         .offsets = product.offsets,
         .x_rows = product.pair_rows,
         .x = product.x,
         .x_stride = product.x_stride == 0 ? weights.columns : product.x_stride,
         .num_rows = product.num_pairs,
         .bias = nullptr,
         .y = product.y,
         .y_stride = product.y_stride == 0 ? experts.rows_per_expert : product.y_stride,
         .float_output = product.float_output,
         .add = false},
        stream));
    return absl::OkStatus();
  }

  std::size_t device_bytes() const { return library_->device_bytes() + scratch_.bytes(); }

 private:
  absl::Status Tiles(const WeightView& weights, const Product& product, const float* bias,
                     cudaStream_t stream) {
    BATON_CUDA_RETURN_IF_ERROR(GroupedMatmul({.weights = weights,
                                              .num_groups = 1,
                                              .rows_per_group = weights.rows,
                                              .offsets = nullptr,
                                              .x_rows = nullptr,
                                              .x = product.x,
                                              .x_stride = product.x_stride,
                                              .num_rows = product.num_rows,
                                              .bias = bias,
                                              .y = product.y,
                                              .y_stride = product.y_stride,
                                              .float_output = product.float_output,
                                              .add = product.add},
                                             stream));
    return absl::OkStatus();
  }

  // Outputs [first, first + count) of a product, weights that are quantized taken from scratch.
  LibraryProduct PartOf(const WeightView& weights, const Product& product, const float* bias,
                        int first, int count) const {
    const std::size_t element = product.float_output ? 4 : 2;
    return {.w = weights.quantized() ? scratch_.data() : weights.Rows(first, count).data,
            .x = product.x,
            .y = static_cast<std::byte*>(product.y) + element * first,
            .bias = bias == nullptr ? nullptr : bias + first,
            .num_rows = product.num_rows,
            .outputs = count,
            .inputs = weights.columns,
            .x_stride = product.x_stride,
            .y_stride = product.y_stride,
            .float_output = product.float_output,
            .add = product.add};
  }

  absl::Status Library(const WeightView& weights, const Product& product, const float* bias,
                       int max_rows, cudaStream_t stream) {
    const int step = RowsAtATime(weights);
    for (int first = 0; first < weights.rows; first += step) {
      const int count = std::min(step, weights.rows - first);
      const WeightView rows = weights.Rows(first, count);
      LibraryProduct part = PartOf(weights, product, bias, first, count);
      BATON_ASSIGN_OR_RETURN(const bool exists, library_->Has(part, max_rows));
      if (!exists) {
        Product own = product;
        own.y = part.y;
        BATON_RETURN_IF_ERROR(Tiles(rows, own, static_cast<const float*>(part.bias), stream));
        continue;
      }
      if (weights.quantized()) {
        BATON_CUDA_RETURN_IF_ERROR(Dequantize(rows, scratch_.data(), stream));
      }
      BATON_RETURN_IF_ERROR(RunInPieces(part, max_rows, stream));
    }
    return absl::OkStatus();
  }

  // At most max_rows rows at a time.
  absl::Status RunInPieces(LibraryProduct part, int max_rows, cudaStream_t stream) {
    const int num_rows = part.num_rows;
    const std::size_t element = part.float_output ? 4 : 2;
    const auto* x = static_cast<const std::byte*>(part.x);
    auto* y = static_cast<std::byte*>(part.y);
    for (int row = 0; row < num_rows; row += max_rows) {
      part.num_rows = std::min(max_rows, num_rows - row);
      part.x = x + std::size_t{2} * part.x_stride * row;
      part.y = y + element * part.y_stride * row;
      BATON_RETURN_IF_ERROR(library_->Run(part, max_rows, stream));
    }
    return absl::OkStatus();
  }

  MatmulOptions options_;
  std::unique_ptr<MatmulLibrary> library_;
  gpu::DeviceBuffer scratch_;
};

Matmul::Matmul(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Matmul::~Matmul() = default;

absl::StatusOr<std::unique_ptr<Matmul>> Matmul::Create(const MatmulOptions& options) {
  BATON_ASSIGN_OR_RETURN(auto library,
                         MatmulLibrary::Create(options.type, options.workspace_bytes));
  BATON_ASSIGN_OR_RETURN(auto scratch, gpu::DeviceBuffer::Create(options.scratch_bytes));
  return std::unique_ptr<Matmul>(
      new Matmul(std::make_unique<Impl>(options, std::move(library), std::move(scratch))));
}

namespace {

// Calls run(part, its product, its bias) for the matrices of a linear map, whose outputs lie side
// by side.
template <class Run>
absl::Status ForParts(const DeviceLinear& linear, const Product& product, const Run& run) {
  Product part = product;
  if (part.x_stride == 0) part.x_stride = linear.columns();
  if (part.y_stride == 0) part.y_stride = linear.rows();
  const std::size_t element = product.float_output ? 4 : 2;
  int first = 0;
  for (const DeviceMatrix& matrix : linear.parts) {
    part.y = static_cast<std::byte*>(product.y) + element * first;
    const float* bias = product.add_bias ? linear.bias_or_null() : nullptr;
    BATON_RETURN_IF_ERROR(run(matrix.view(), part, bias == nullptr ? nullptr : bias + first));
    first += matrix.rows();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Matmul::Prepare(const DeviceLinear& linear, const Product& product, int max_rows) {
  return ForParts(linear, product,
                  [&](const WeightView& weights, const Product& part, const float* bias) {
                    return impl_->Prepare(weights, part, bias != nullptr, max_rows);
                  });
}

absl::Status Matmul::Multiply(const DeviceLinear& linear, const Product& product,
                              cudaStream_t stream) {
  return ForParts(linear, product,
                  [&](const WeightView& weights, const Product& part, const float* bias) {
                    return impl_->Multiply(weights, part, bias, stream);
                  });
}

absl::Status Matmul::Multiply(const DeviceMatrix& matrix, const Product& product,
                              cudaStream_t stream) {
  Product whole = product;
  if (whole.x_stride == 0) whole.x_stride = matrix.columns();
  if (whole.y_stride == 0) whole.y_stride = matrix.rows();
  return impl_->Multiply(matrix.view(), whole, nullptr, stream);
}

absl::Status Matmul::MultiplyExperts(const ExpertLinear& experts, const ExpertProduct& product,
                                     cudaStream_t stream) {
  return impl_->MultiplyExperts(experts, product, stream);
}

std::size_t Matmul::device_bytes() const { return impl_->device_bytes(); }

}  // namespace baton::engine::cuda
