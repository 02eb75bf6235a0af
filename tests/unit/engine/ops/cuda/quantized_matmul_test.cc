#include "engine/ops/cuda/kernels/quantized_matmul.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/cuda/kernels/dequantize.h"
#include "tests/support/device_weights.h"
#include "tests/support/random_matrix.h"

namespace baton::engine::cuda {
namespace {

using checkpoint::DType;
using testing::Rounded;

// One of each form on the device, and dense in T's own and another type.
constexpr DType kForms[] = {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kInt4};

class FewRowsTest : public testing::DeviceWeightsTest {
 protected:
  // y of a product as bits of float or T.
  std::vector<float> Run(FewRowsArguments arguments, const std::vector<float>& x,
                         const std::vector<float>& bias, const std::vector<float>& y) {
    const ElementType type = arguments.weights.type;
    const auto device_x = ToDevice(testing::AllToBits(type, x));
    const auto put = [&](const std::vector<float>& values) {
      return arguments.float_output ? ToDevice(values) : ToDevice(testing::AllToBits(type, values));
    };
    const auto device_bias = put(bias.empty() ? std::vector<float>(1) : bias), device_y = put(y);
    arguments.x = device_x.data();
    arguments.bias = bias.empty() ? nullptr : device_bias.data();
    arguments.y = device_y.data();
    testing::ExpectCuda(FewRowsMatmul(arguments, stream()));
    if (arguments.float_output) return ToHost<float>(device_y, y.size());
    std::vector<float> result;
    for (const std::uint16_t bits : ToHost<std::uint16_t>(device_y, y.size())) {
      result.push_back(testing::FromBits(type, bits));
    }
    return result;
  }
};

TEST_F(FewRowsTest, EqualsSumsInDouble) {
  std::mt19937 random(1);
  for (const DType dtype : kForms) {
    for (const ElementType type : testing::kElementTypes) {
      for (const int num_rows : {1, 2, 3, 5, 8}) {
        // More than one chunk of 2048 columns now and then; rows that fill no block.
        const int columns = num_rows == 3 ? 2048 + 576 : 32 * (1 + static_cast<int>(random() % 18));
        const int rows = 1 + static_cast<int>(random() % 40);
        const bool float_output = random() % 2 == 0, add = random() % 2 == 0;
        SCOPED_TRACE(absl::StrCat(std::string(checkpoint::DTypeName(dtype)), " ", num_rows,
                                  " rows of ", columns, " to ", rows, " float ", float_output));
        const testing::RandomMatrix matrix(dtype, rows, columns, random);
        const DeviceMatrix weights = Upload(matrix.tensor(), type);
        const int x_stride = columns + 8, y_stride = rows + 3;
        const auto x = testing::RandomInputs(type, num_rows, x_stride, random);
        const auto bias = testing::RandomInputs(type, 1, rows, random);
        const auto before = testing::RandomInputs(type, num_rows, y_stride, random);

        const auto after = Run({.weights = weights.view(),
                                .x = nullptr,
                                .x_stride = x_stride,
                                .num_rows = num_rows,
                                .bias = nullptr,
                                .y = nullptr,
                                .y_stride = y_stride,
                                .float_output = float_output,
                                .add = add},
                               x, bias, before);

        std::vector<float> exact = testing::ExactWeights(matrix.tensor());
        for (float& w : exact) {
          if (!weights.view().quantized()) w = Rounded(type, w);
        }
        for (int t = 0; t < num_rows; ++t) {
          for (int n = 0; n < y_stride; ++n) {
            const int at = t * y_stride + n;
            if (n >= rows) {
              ASSERT_EQ(after[at], before[at]) << "written beyond the row";
              continue;
            }
            const auto dot = testing::Dot(&x[t * x_stride], &exact[n * columns], columns);
            const double want = dot.value + bias[n] + (add ? before[at] : 0.0f);
            const double rounding =
                float_output ? 1e-6 : std::abs(want) * testing::RoundingError(type) + 1e-6;
            ASSERT_NEAR(after[at], want, dot.tolerance + rounding)
                << "row " << t << " output " << n;
          }
        }
      }
    }
  }
}

TEST_F(FewRowsTest, ARowDoesNotDependOnTheNumberOfRows) {
  std::mt19937 random(2);
  for (const DType dtype : kForms) {
    SCOPED_TRACE(checkpoint::DTypeName(dtype));
    constexpr int kRows = 21, kColumns = 1152;
    const testing::RandomMatrix matrix(dtype, kRows, kColumns, random);
    const DeviceMatrix weights = Upload(matrix.tensor(), ElementType::kBF16);
    const auto x = testing::RandomInputs(ElementType::kBF16, 8, kColumns, random);
    const auto product = [&](int num_rows) {
      return Run({.weights = weights.view(),
                  .x = nullptr,
                  .x_stride = kColumns,
                  .num_rows = num_rows,
                  .bias = nullptr,
                  .y = nullptr,
                  .y_stride = kRows,
                  .float_output = true,
                  .add = false},
                 x, {}, std::vector<float>(8 * kRows));
    };

    const auto all = product(8);

    for (int num_rows = 1; num_rows < 8; ++num_rows) {
      const auto some = product(num_rows);
      EXPECT_TRUE(std::equal(some.begin(), some.begin() + num_rows * kRows, all.begin()))
          << num_rows;
    }
  }
}

TEST_F(FewRowsTest, FollowsTheColumnOrder) {
  std::mt19937 random(3);
  constexpr int kRows = 5, kColumns = 96;
  const testing::RandomMatrix matrix(DType::kInt4, kRows, kColumns, random);
  std::vector<std::int32_t> order(kColumns);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  checkpoint::Tensor tensor = matrix.tensor();
  tensor.column_order = order;
  const DeviceMatrix weights = Upload(tensor, ElementType::kF16);
  const auto x = testing::RandomInputs(ElementType::kF16, 2, kColumns, random);

  const auto y = Run({.weights = weights.view(),
                      .x = nullptr,
                      .x_stride = kColumns,
                      .num_rows = 2,
                      .bias = nullptr,
                      .y = nullptr,
                      .y_stride = kRows,
                      .float_output = true,
                      .add = false},
                     x, {}, std::vector<float>(2 * kRows));

  const auto exact = testing::ExactWeights(tensor);
  for (int i = 0; i < 2 * kRows; ++i) {
    const auto dot = testing::Dot(&x[i / kRows * kColumns], &exact[i % kRows * kColumns], kColumns);
    EXPECT_NEAR(y[i], dot.value, dot.tolerance + 1e-6);
  }
}

TEST_F(FewRowsTest, RefusesShapesItCannotRead) {
  std::mt19937 random(4);
  const testing::RandomMatrix matrix(DType::kQ8_0, 4, 64, random);
  const DeviceMatrix weights = Upload(matrix.tensor(), ElementType::kF16);
  const FewRowsArguments good = {.weights = weights.view(),
                                 .x = nullptr,
                                 .x_stride = 64,
                                 .num_rows = 1,
                                 .bias = nullptr,
                                 .y = nullptr,
                                 .y_stride = 4,
                                 .float_output = true,
                                 .add = false};
  const auto expect_refused = [&](const auto& change) {
    FewRowsArguments arguments = good;
    change(arguments);
    EXPECT_EQ(FewRowsMatmul(arguments, stream()), cudaErrorInvalidValue);
  };
  expect_refused([](auto& a) { a.num_rows = 9; });
  expect_refused([](auto& a) { a.x_stride = 68; });
  expect_refused([](auto& a) { a.x_stride = 56; });
  expect_refused([](auto& a) { a.y_stride = 3; });
  expect_refused([](auto& a) { a.weights.columns = 60; });
  expect_refused([](auto& a) { a.weights.scales = nullptr; });
}

using EmbedRowsTest = testing::DeviceWeightsTest;

TEST_F(EmbedRowsTest, GivesScaledRowsAndZerosOutsideOfTheSlice) {
  std::mt19937 random(5);
  for (const DType dtype : kForms) {
    SCOPED_TRACE(checkpoint::DTypeName(dtype));
    constexpr int kRows = 10, kColumns = 288, kFirst = 100;
    const testing::RandomMatrix matrix(dtype, kRows, kColumns, random);
    const DeviceMatrix weights = Upload(matrix.tensor(), ElementType::kBF16);
    const std::vector<int> tokens = {104, 99, 109, 110, 100};
    const auto device_tokens = ToDevice(tokens);
    const auto x = OnDevice(tokens.size() * kColumns * sizeof(float));

    testing::ExpectCuda(EmbedRows(weights.view(), device_tokens.as<int>(), 5, kFirst, 1.5f,
                                  x.as<float>(), stream()));

    const auto got = ToHost<float>(x, tokens.size() * kColumns);
    const auto exact = testing::ExactWeights(matrix.tensor());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const int row = tokens[i / kColumns] - kFirst;
      const bool inside = row >= 0 && row < kRows;
      const float want = inside ? exact[row * kColumns + i % kColumns] * 1.5f : 0.0f;
      ASSERT_EQ(got[i], want) << i;
    }
  }
}

}  // namespace
}  // namespace baton::engine::cuda
