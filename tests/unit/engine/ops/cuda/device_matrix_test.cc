#include "engine/ops/cuda/device_matrix.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "tests/support/device_weights.h"
#include "tests/support/random_matrix.h"

namespace baton::engine::cuda {
namespace {

using checkpoint::DType;
using checkpoint::Tensor;
using testing::RandomMatrix;

class DeviceMatrixTest : public testing::DeviceWeightsTest {
 protected:
  // Expects exactly the slice's weights, each rounded to T once.
  void ExpectSlice(const DeviceMatrix& matrix, int first_row, const MatrixSlice& slice) {
    const ElementType type = matrix.view().type;
    const std::vector<float> exact = testing::ExactWeights(*slice.tensor);
    const auto got = ReadBack(matrix.view().Rows(first_row, slice.rows.size()));
    const int width = slice.columns.size();
    for (int row = 0; row < slice.rows.size(); ++row) {
      for (int c = 0; c < width; ++c) {
        const float want =
            exact[(slice.rows.begin + row) * slice.tensor->columns() + slice.columns.begin + c];
        ASSERT_EQ(got[row * width + c], testing::ToBits(type, want))
            << "row " << row << ", column " << c;
      }
    }
  }
};

std::vector<std::int32_t> RandomOrder(int count, std::mt19937& random) {
  std::vector<std::int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

// Makes all blocks of a run share the floats of the first, as a checkpoint's larger groups do.
std::vector<std::byte> WithGroupsOf(int columns, const Tensor& tensor) {
  std::vector<std::byte> data(tensor.data.begin(), tensor.data.end());
  const std::size_t block = checkpoint::BlockBytes(tensor.dtype), run = columns / 32;
  for (std::size_t b = 0; b < data.size() / block; ++b) {
    std::copy_n(data.begin() + b / run * run * block, 3, data.begin() + b * block);
  }
  return data;
}

TEST_F(DeviceMatrixTest, HoldsWholeMatricesOfEveryFormatExactly) {
  std::mt19937 random(1);
  for (const DType dtype : testing::AllDTypes()) {
    for (const ElementType type : testing::kElementTypes) {
      SCOPED_TRACE(checkpoint::DTypeName(dtype));
      const RandomMatrix matrix(dtype, /*rows=*/19, /*columns=*/512, random);

      const DeviceMatrix uploaded = Upload(matrix.tensor(), type);

      EXPECT_EQ(uploaded.view().format, DeviceMatrix::FormatOf(matrix.tensor()));
      ExpectSlice(uploaded, 0, MatrixSlice::Whole(matrix.tensor()));
    }
  }
}

TEST_F(DeviceMatrixTest, HoldsSlicesOfRowsAndColumns) {
  std::mt19937 random(2);
  for (const DType dtype : testing::AllDTypes()) {
    SCOPED_TRACE(checkpoint::DTypeName(dtype));
    const RandomMatrix matrix(dtype, 11, 768, random);
    // Ends inside of a block of the K types, which are unpacked before they are cut.
    const MatrixSlice slice = {&matrix.tensor(), {3, 9}, {96, 352}};

    const DeviceMatrix uploaded = Upload({slice}, ElementType::kBF16);

    EXPECT_EQ(uploaded.rows(), 6);
    EXPECT_EQ(uploaded.columns(), 256);
    ExpectSlice(uploaded, 0, slice);
  }
}

TEST_F(DeviceMatrixTest, StacksMapsOfOneFormatQuantizedAndOthersDense) {
  std::mt19937 random(3);
  const RandomMatrix q(DType::kQ4_1, 8, 256, random), k(DType::kQ4_1, 3, 256, random);
  const RandomMatrix v(DType::kQ6_K, 5, 256, random);
  const std::vector<MatrixSlice> alike = {MatrixSlice::Whole(q.tensor()),
                                          {&k.tensor(), {1, 3}, {0, 256}}};
  const std::vector<MatrixSlice> mixed = {MatrixSlice::Whole(q.tensor()),
                                          MatrixSlice::Whole(v.tensor())};

  const DeviceMatrix quantized = Upload(alike, ElementType::kF16);
  const DeviceMatrix dense = Upload(mixed, ElementType::kF16);

  EXPECT_EQ(quantized.view().format, WeightFormat::kInt4Min);
  EXPECT_EQ(dense.view().format, WeightFormat::kDense);
  ExpectSlice(quantized, 0, alike[0]);
  ExpectSlice(quantized, 8, alike[1]);
  ExpectSlice(dense, 0, mixed[0]);
  ExpectSlice(dense, 8, mixed[1]);
}

TEST_F(DeviceMatrixTest, KeepsAColumnOrderOfWholeRowsAndUndoesItForSlices) {
  std::mt19937 random(4);
  for (const DType dtype : {DType::kInt4, DType::kQ8_0, DType::kF32}) {
    SCOPED_TRACE(checkpoint::DTypeName(dtype));
    const RandomMatrix matrix(dtype, 7, 192, random);
    const std::vector<std::int32_t> order = RandomOrder(192, random);
    Tensor tensor = matrix.tensor();
    tensor.column_order = order;
    const MatrixSlice slice = {&tensor, {2, 7}, {64, 128}};

    const DeviceMatrix whole = Upload(tensor, ElementType::kBF16);
    const DeviceMatrix cut = Upload({slice}, ElementType::kBF16);

    EXPECT_EQ(whole.view().column_order != nullptr, dtype != DType::kF32);
    EXPECT_EQ(cut.view().format, WeightFormat::kDense);
    ExpectSlice(whole, 0, MatrixSlice::Whole(tensor));
    ExpectSlice(cut, 0, slice);
  }
}

TEST_F(DeviceMatrixTest, KeepsOneScaleForAGroupOfTheCheckpoint) {
  std::mt19937 random(5);
  const RandomMatrix matrix(DType::kInt4, 6, 384, random);
  for (const int group : {32, 64, 128}) {
    SCOPED_TRACE(group);
    Tensor tensor = matrix.tensor();
    const std::vector<std::byte> data = WithGroupsOf(group, tensor);
    tensor.data = data;

    const DeviceMatrix uploaded = Upload(tensor, ElementType::kF16);

    EXPECT_EQ(uploaded.view().group, group);
    ExpectSlice(uploaded, 0, MatrixSlice::Whole(tensor));
  }
}

TEST_F(DeviceMatrixTest, RefusesToCutAGroupAndSaysSo) {
  std::mt19937 random(6);
  const RandomMatrix matrix(DType::kQ4_0, 4, 128, random);
  const MatrixSlice slice = {&matrix.tensor(), {0, 4}, {48, 128}};

  const auto cut = DeviceMatrix::Upload({&slice, 1}, false, uploader(ElementType::kBF16));

  EXPECT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(cut.status().message()), ::testing::HasSubstr("cut a group of 32"));
  EXPECT_EQ(Upload({slice}, ElementType::kBF16, /*dense=*/true).columns(), 80);
}

TEST_F(DeviceMatrixTest, RefusesWhatNoProductCanRead) {
  std::mt19937 random(7);
  const RandomMatrix matrix(DType::kF16, 4, 128, random), other(DType::kF16, 4, 64, random);
  const RandomMatrix wide(DType::kF16, 1, 1 << 14, random);  // a row is longer than a piece
  const std::vector<std::vector<MatrixSlice>> refused = {
      {},
      {{&matrix.tensor(), {0, 5}, {0, 128}}},
      {{&matrix.tensor(), {2, 2}, {0, 128}}},
      {{&matrix.tensor(), {0, 4}, {-8, 128}}},
      {{&matrix.tensor(), {0, 4}, {0, 124}}},
      {MatrixSlice::Whole(matrix.tensor()), MatrixSlice::Whole(other.tensor())},
      {MatrixSlice::Whole(wide.tensor())}};
  for (const auto& slices : refused) {
    const auto result = DeviceMatrix::Upload(slices, false, uploader(ElementType::kBF16));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument)
        << result.status().ToString();
  }
}

}  // namespace
}  // namespace baton::engine::cuda
