#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/tensor.h"
#include "engine/ops/cuda/device_matrix.h"
#include "engine/ops/cuda/kernels/dequantize.h"
#include "tests/support/cuda_test.h"

// What tests of weights and products on the device share: values of T without its type, and sums in
// double to compare with.
namespace baton::testing {

using engine::cuda::ElementType;

inline constexpr ElementType kElementTypes[] = {ElementType::kBF16, ElementType::kF16};

inline std::uint16_t ToBits(ElementType type, float value) {
  return type == ElementType::kBF16 ? checkpoint::FloatToBFloat16(value)
                                    : checkpoint::FloatToHalf(value);
}
inline float FromBits(ElementType type, std::uint16_t bits) {
  return type == ElementType::kBF16 ? checkpoint::BFloat16ToFloat(bits)
                                    : checkpoint::HalfToFloat(bits);
}
// `value` rounded to T.
inline float Rounded(ElementType type, float value) { return FromBits(type, ToBits(type, value)); }

inline std::vector<std::uint16_t> AllToBits(ElementType type, std::span<const float> values) {
  std::vector<std::uint16_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(ToBits(type, value));
  return bits;
}

// [rows, columns], values of T.
inline std::vector<float> RandomInputs(ElementType type, int rows, int columns,
                                       std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(rows) * columns);
  for (float& value : values) value = Rounded(type, normal(random));
  return values;
}

// The values of a matrix in the order of inputs, as the checkpoint defines them.
inline std::vector<float> ExactWeights(const checkpoint::Tensor& tensor) {
  const std::int64_t columns = tensor.columns();
  std::vector<float> values(tensor.rows() * columns), row(columns);
  for (std::int64_t r = 0; r < tensor.rows(); ++r) {
    checkpoint::DequantizeRow(tensor.dtype, tensor.data.data() + r * tensor.row_bytes(), columns,
                              row.data());
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t input = tensor.column_order.empty() ? c : tensor.column_order[c];
      values[r * columns + input] = row[c];
    }
  }
  return values;
}

// A sum of products and what a float computation in any order may be off by.
struct DotResult {
  double value = 0;
  double tolerance = 0;
};
// Of `count` products; weights that a kernel may have rounded to T may be off by `weight_error` of
// their size. Source of the bound: Higham 2002, Accuracy and Stability, section 3.1.
inline DotResult Dot(const float* x, const float* w, int count, double weight_error = 0) {
  DotResult result;
  double magnitude = 0;
  for (int i = 0; i < count; ++i) {
    result.value += double{x[i]} * w[i];
    magnitude += std::abs(double{x[i]} * w[i]);
  }
  result.tolerance = magnitude * (count * 0x1.0p-23 + weight_error);
  return result;
}
// What rounding to T, at most, changes of a value.
inline double RoundingError(ElementType type) {
  return type == ElementType::kBF16 ? 0x1.0p-8 : 0x1.0p-11;
}

// A test with an uploader for each element type.
class DeviceWeightsTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    for (const ElementType type : kElementTypes) {
      auto uploader = engine::cuda::WeightUploader::Create(type, /*piece_bytes=*/1 << 14);
      ASSERT_TRUE(uploader.ok()) << uploader.status().ToString();
      uploaders_.push_back(*std::move(uploader));
    }
  }
  engine::cuda::WeightUploader& uploader(ElementType type) {
    return *uploaders_[type == ElementType::kBF16 ? 0 : 1];
  }
  engine::cuda::DeviceMatrix Upload(std::vector<engine::cuda::MatrixSlice> slices, ElementType type,
                                    bool dense = false) {
    auto matrix = engine::cuda::DeviceMatrix::Upload(slices, dense, uploader(type));
    EXPECT_TRUE(matrix.ok()) << matrix.status().ToString();
    return matrix.ok() ? *std::move(matrix) : engine::cuda::DeviceMatrix();
  }
  engine::cuda::DeviceMatrix Upload(const checkpoint::Tensor& tensor, ElementType type) {
    return Upload({engine::cuda::MatrixSlice::Whole(tensor)}, type);
  }
  // A matrix on the device as T, in the order of inputs.
  std::vector<std::uint16_t> ReadBack(const engine::cuda::WeightView& view) {
    const std::size_t count = static_cast<std::size_t>(view.rows) * view.columns;
    auto out = OnDevice(count * 2);
    if (view.quantized()) {
      ExpectCuda(engine::cuda::Dequantize(view, out.data(), stream()));
    } else {
      ExpectCuda(
          cudaMemcpyAsync(out.data(), view.data, count * 2, cudaMemcpyDeviceToDevice, stream()));
    }
    return ToHost<std::uint16_t>(out, count);
  }

 private:
  std::vector<std::unique_ptr<engine::cuda::WeightUploader>> uploaders_;
};

}  // namespace baton::testing
