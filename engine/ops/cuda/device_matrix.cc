#include "engine/ops/cuda/device_matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::engine::cuda {
namespace {

using checkpoint::DType;
using checkpoint::Tensor;

// Pieces of a matrix begin at multiples of this, what cudaMalloc itself aligns to.
constexpr std::size_t kAlignment = 256;
std::size_t Aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Where a block of 32 weights of the checkpoint keeps its codes, after its floats.
std::size_t CodesOffset(DType dtype) {
  return static_cast<std::size_t>(checkpoint::BlockBytes(dtype)) -
         (dtype == DType::kQ8_0 ? kWeightGroup : kWeightGroup / 2);
}

const std::byte* RowOf(const Tensor& tensor, int row) {
  return tensor.data.data() + tensor.row_bytes() * row;
}

absl::Status CheckSlices(std::span<const MatrixSlice> slices) {
  if (slices.empty()) return absl::InvalidArgumentError("a matrix of no slices");
  const int width = slices.front().columns.size();
  for (const MatrixSlice& slice : slices) {
    const Tensor& tensor = *slice.tensor;
    const auto inside = [](IndexRange range, std::int64_t size) {
      return range.begin >= 0 && range.begin < range.end && range.end <= size;
    };
    if (!inside(slice.rows, tensor.rows()) || !inside(slice.columns, tensor.columns())) {
      return absl::InvalidArgumentError(
          absl::StrFormat("slice out of range: rows %d..%d, columns %d..%d of %s, which is %d x %d",
                          slice.rows.begin, slice.rows.end, slice.columns.begin, slice.columns.end,
                          tensor.name, tensor.rows(), tensor.columns()));
    }
    if (slice.columns.size() != width || width % 8 != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "columns of %s: %d, must be a multiple of 8 and as many as of the maps beside it (%d); "
          "choose another tensor parallel size",
          tensor.name, slice.columns.size(), width));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(std::span<const MatrixSlice> slices) {
  for (const MatrixSlice& slice : slices) {
    if (slice.columns.begin % kWeightGroup == 0 && slice.columns.end % kWeightGroup == 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "columns %d..%d of %s (%s) cut a group of %d quantized weights; choose a tensor parallel "
        "size that divides the model at multiples of %d",
        slice.columns.begin, slice.columns.end, slice.tensor->name,
        checkpoint::DTypeName(slice.tensor->dtype), kWeightGroup, kWeightGroup));
  }
  return absl::OkStatus();
}

// Blocks of one row of a slice.
struct Blocks {
  const std::byte* first;
  std::size_t bytes;  // of each
  int count;
};
Blocks BlocksOf(const MatrixSlice& slice, int row) {
  const auto bytes = static_cast<std::size_t>(checkpoint::BlockBytes(slice.tensor->dtype));
  return {
      RowOf(*slice.tensor, slice.rows.begin + row) + bytes * (slice.columns.begin / kWeightGroup),
      bytes, slice.columns.size() / kWeightGroup};
}

// Whether each run of `run` blocks has one scale and one zero: the checkpoint repeats those of
// groups larger than its blocks.
bool RunsAgree(const MatrixSlice& slice, int run) {
  const std::size_t header = CodesOffset(slice.tensor->dtype);
  for (int row = 0; row < slice.rows.size(); ++row) {
    const Blocks blocks = BlocksOf(slice, row);
    for (int b = 0; b < blocks.count; ++b) {
      const std::byte* block = blocks.first + blocks.bytes * b;
      const std::byte* leader = blocks.first + blocks.bytes * (b / run * run);
      if (std::memcmp(block, leader, header) != 0) return false;
    }
  }
  return true;
}

// The largest group that all slices are made of.
int GroupOf(std::span<const MatrixSlice> slices) {
  if (slices.front().tensor->dtype != DType::kInt4) return kWeightGroup;  // as the format says
  for (const int group : {4 * kWeightGroup, 2 * kWeightGroup}) {
    if (slices.front().columns.size() % group == 0 &&
        std::all_of(slices.begin(), slices.end(), [&](const MatrixSlice& slice) {
          return RunsAgree(slice, group / kWeightGroup);
        })) {
      return group;
    }
  }
  return kWeightGroup;
}

void PutCodes(const MatrixSlice& slice, int row, std::byte* out) {
  const std::size_t header = CodesOffset(slice.tensor->dtype);
  const Blocks blocks = BlocksOf(slice, row);
  const std::size_t bytes = blocks.bytes - header;
  for (int b = 0; b < blocks.count; ++b, out += bytes) {
    std::memcpy(out, blocks.first + blocks.bytes * b + header, bytes);
  }
}

void PutScales(const MatrixSlice& slice, int row, const WeightView& view, std::byte* out) {
  const Blocks blocks = BlocksOf(slice, row);
  const auto put = [&](std::uint16_t half) {
    std::memcpy(out, &half, sizeof(half));
    out += sizeof(half);
  };
  const auto half_at = [](const std::byte* at) {
    std::uint16_t half;
    std::memcpy(&half, at, sizeof(half));
    return half;
  };
  for (int b = 0; b < blocks.count; b += view.group / kWeightGroup) {
    const std::byte* block = blocks.first + blocks.bytes * b;
    put(half_at(block));
    if (view.format == WeightFormat::kInt4Min) put(half_at(block + 2));
    if (view.format == WeightFormat::kInt4Zero) {
      put(checkpoint::FloatToHalf(std::to_integer<int>(block[2])));
    }
  }
}

// Rows of a slice as T, its columns in the order of inputs.
class DenseRows {
 public:
  DenseRows(const MatrixSlice& slice, ElementType type) : slice_(slice), type_(type) {
    const int block = checkpoint::BlockElements(slice.tensor->dtype);
    if (slice.tensor->column_order.empty()) {
      first_ = slice.columns.begin / block * block;
      values_.resize((slice.columns.end + block - 1) / block * block - first_);
    } else {
      values_.resize(slice.tensor->columns());
      ordered_.resize(slice.tensor->columns());
    }
  }

  void Put(int row, std::byte* out) {
    const Tensor& tensor = *slice_.tensor;
    const std::byte* data = RowOf(tensor, slice_.rows.begin + row);
    const int count = slice_.columns.size();
    if (tensor.column_order.empty() &&
        tensor.dtype == (type_ == ElementType::kBF16 ? DType::kBF16 : DType::kF16)) {
      std::memcpy(out, data + std::size_t{2} * slice_.columns.begin, std::size_t{2} * count);
      return;
    }
    const std::int64_t block = checkpoint::BlockElements(tensor.dtype);
    checkpoint::DequantizeRow(tensor.dtype,
                              data + first_ / block * checkpoint::BlockBytes(tensor.dtype),
                              static_cast<std::int64_t>(values_.size()), values_.data());
    const float* values = values_.data() + slice_.columns.begin - first_;
    if (!tensor.column_order.empty()) {
      for (std::size_t c = 0; c < values_.size(); ++c)
        ordered_[tensor.column_order[c]] = values_[c];
      values = ordered_.data() + slice_.columns.begin;
    }
    for (int i = 0; i < count; ++i) {
      const std::uint16_t bits = type_ == ElementType::kBF16
                                     ? checkpoint::FloatToBFloat16(values[i])
                                     : checkpoint::FloatToHalf(values[i]);
      std::memcpy(out + std::size_t{2} * i, &bits, sizeof(bits));
    }
  }

 private:
  const MatrixSlice& slice_;
  ElementType type_;
  int first_ = 0;  // column of values_[0]
  std::vector<float> values_, ordered_;
};

}  // namespace

MatrixSlice MatrixSlice::Whole(const Tensor& tensor) {
  return {&tensor, {0, static_cast<int>(tensor.rows())}, {0, static_cast<int>(tensor.columns())}};
}

WeightFormat DeviceMatrix::FormatOf(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::kQ8_0:
      return WeightFormat::kInt8;
    case DType::kQ4_0:
      return WeightFormat::kInt4;
    case DType::kQ4_1:
      return WeightFormat::kInt4Min;
    case DType::kInt4:
      return WeightFormat::kInt4Zero;
    default:
      return WeightFormat::kDense;
  }
}

bool DeviceMatrix::SameQuantizedForm(std::span<const MatrixSlice> slices) {
  if (slices.empty()) return false;
  const Tensor& first = *slices.front().tensor;
  return FormatOf(first) != WeightFormat::kDense &&
         std::all_of(slices.begin(), slices.end(), [&](const MatrixSlice& slice) {
           const Tensor& tensor = *slice.tensor;
           return tensor.dtype == first.dtype &&
                  std::ranges::equal(tensor.column_order, first.column_order) &&
                  (tensor.column_order.empty() || slice.columns.size() == tensor.columns());
         });
}

absl::StatusOr<DeviceMatrix> DeviceMatrix::Upload(std::span<const MatrixSlice> slices, bool dense,
                                                  WeightUploader& uploader) {
  BATON_RETURN_IF_ERROR(CheckSlices(slices));
  const Tensor& first = *slices.front().tensor;
  DeviceMatrix matrix;
  WeightView& view = matrix.view_;
  view.type = uploader.type();
  view.columns = slices.front().columns.size();
  for (const MatrixSlice& slice : slices) view.rows += slice.rows.size();
  if (!dense && SameQuantizedForm(slices)) {
    BATON_RETURN_IF_ERROR(CheckGroups(slices));
    view.format = FormatOf(first);
    view.group = GroupOf(slices);
  }
  const std::size_t scale_bytes = view.scales_per_row() * sizeof(std::uint16_t);
  const std::size_t scales_at = Aligned(view.row_bytes() * view.rows);
  const std::size_t order_at = Aligned(scales_at + scale_bytes * view.rows);
  const bool ordered = view.quantized() && !first.column_order.empty();
  BATON_ASSIGN_OR_RETURN(
      matrix.buffer_,
      gpu::DeviceBuffer::Create(order_at + (ordered ? first.column_order.size_bytes() : 0)));
  std::byte* const data = matrix.buffer_.data();
  view.data = data;
  if (view.quantized()) view.scales = reinterpret_cast<std::uint16_t*>(data + scales_at);
  if (ordered) {
    view.column_order = reinterpret_cast<int*>(data + order_at);
    BATON_RETURN_IF_ERROR(uploader.Copy(data + order_at, std::as_bytes(first.column_order)));
  }
  int row = 0;
  for (const MatrixSlice& slice : slices) {
    BATON_RETURN_IF_ERROR(UploadRows(slice, view, row, uploader));
    row += slice.rows.size();
  }
  BATON_RETURN_IF_ERROR(uploader.Finish());
  return matrix;
}

absl::Status DeviceMatrix::UploadRows(const MatrixSlice& slice, const WeightView& view,
                                      int first_row, WeightUploader& uploader) {
  const auto upload = [&](const void* base, std::size_t row_bytes, const auto& put) {
    auto* to = static_cast<std::byte*>(const_cast<void*>(base)) + row_bytes * first_row;
    return uploader.Upload(to, slice.rows.size(), row_bytes,
                           [&](int first, int number, std::byte* out) {
                             for (int i = 0; i < number; ++i) put(first + i, out + row_bytes * i);
                           });
  };
  if (!view.quantized()) {
    DenseRows rows(slice, view.type);
    return upload(view.data, view.row_bytes(),
                  [&](int row, std::byte* out) { rows.Put(row, out); });
  }
  BATON_RETURN_IF_ERROR(upload(view.data, view.row_bytes(),
                               [&](int row, std::byte* out) { PutCodes(slice, row, out); }));
  return upload(view.scales, view.scales_per_row() * sizeof(std::uint16_t),
                [&](int row, std::byte* out) { PutScales(slice, row, view, out); });
}

}  // namespace baton::engine::cuda
