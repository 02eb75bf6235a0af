#include "engine/ops/cuda/matmul.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "common/status.h"
#include "tests/support/device_weights.h"
#include "tests/support/random_matrix.h"

namespace baton::engine::cuda {
namespace {

using checkpoint::DType;

constexpr DType kForms[] = {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kInt4};

class MatmulTest : public testing::DeviceWeightsTest {
 protected:
  static std::unique_ptr<Matmul> New(ElementType type, std::size_t scratch_bytes = 1 << 20) {
    auto matmul =
        Matmul::Create({.type = type, .workspace_bytes = 1 << 20, .scratch_bytes = scratch_bytes});
    EXPECT_TRUE(matmul.ok()) << matmul.status().ToString();
    return *std::move(matmul);
  }

  // y [num_rows, y_stride] as floats; `product` brings all but the pointers.
  absl::StatusOr<std::vector<float>> Run(Matmul& matmul, const DeviceLinear& linear,
                                         Product product, const std::vector<float>& x,
                                         const std::vector<float>& y) {
    const ElementType type = linear.parts.front().view().type;
    const auto device_x = ToDevice(testing::AllToBits(type, x));
    const auto device_y =
        product.float_output ? ToDevice(y) : ToDevice(testing::AllToBits(type, y));
    product.x = device_x.data();
    product.y = device_y.data();
    BATON_RETURN_IF_ERROR(matmul.Multiply(linear, product, stream()));
    if (product.float_output) return ToHost<float>(device_y, y.size());
    std::vector<float> result;
    for (const std::uint16_t bits : ToHost<std::uint16_t>(device_y, y.size())) {
      result.push_back(testing::FromBits(type, bits));
    }
    return result;
  }

  DeviceLinear LinearOf(const checkpoint::Tensor& tensor, ElementType type,
                        const std::vector<float>& bias = {}) {
    DeviceLinear linear;
    linear.parts.push_back(Upload(tensor, type));
    if (!bias.empty()) linear.bias = ToDevice(bias);
    return linear;
  }
};

TEST(RowClassTest, CoversEveryNumberOfRowsWithFewClasses) {
  for (const WeightFormat format : {WeightFormat::kDense, WeightFormat::kInt4Min}) {
    int num_classes = 0;
    RowClass last;
    for (int rows = 1; rows <= 20000; ++rows) {
      const RowClass row_class = ClassOf(format, rows);
      num_classes += row_class != last;
      EXPECT_TRUE(rows <= row_class.max_rows || row_class.max_rows == 8192) << rows;
      last = row_class;
    }
    EXPECT_LE(num_classes, 11);
  }
  EXPECT_EQ(ClassOf(WeightFormat::kDense, 4).kernel, RowClass::Kernel::kFewRows);
  EXPECT_EQ(ClassOf(WeightFormat::kDense, 5), (RowClass{RowClass::Kernel::kLibrary, 16}));
  EXPECT_EQ(ClassOf(WeightFormat::kInt8, 64).kernel, RowClass::Kernel::kTile);
  EXPECT_EQ(ClassOf(WeightFormat::kInt8, 65), (RowClass{RowClass::Kernel::kLibrary, 128}));
}

// Every class, odd sizes that models have, strides, bias and addition.
TEST_F(MatmulTest, EqualsSumsInDouble) {
  std::mt19937 random(1);
  for (const DType dtype : kForms) {
    for (const ElementType type : testing::kElementTypes) {
      const auto matmul = New(type, /*scratch_bytes=*/128 * 2 * 192);
      for (const int num_rows : {1, 7, 20, 66, 130}) {
        const int columns = 192, rows = 100 + static_cast<int>(random() % 100);
        const bool add = random() % 2 == 0, float_output = random() % 4 != 0;
        SCOPED_TRACE(absl::StrCat(std::string(checkpoint::DTypeName(dtype)), " ", num_rows,
                                  " rows to ", rows));
        const testing::RandomMatrix matrix(dtype, rows, columns, random);
        const auto bias = testing::RandomInputs(type, 1, rows, random);
        const DeviceLinear linear = LinearOf(matrix.tensor(), type, bias);
        const int x_stride = columns + 16, y_stride = rows + 4;
        const auto x = testing::RandomInputs(type, num_rows, x_stride, random);
        const auto before = testing::RandomInputs(type, num_rows, y_stride, random);

        const auto after = Run(*matmul, linear,
                               {.x_stride = x_stride,
                                .num_rows = num_rows,
                                .y_stride = y_stride,
                                .float_output = float_output,
                                .add = add,
                                .add_bias = float_output},
                               x, before);

        ASSERT_TRUE(after.ok()) << after.status().ToString();
        const auto exact = testing::ExactWeights(matrix.tensor());
        for (int i = 0; i < num_rows * y_stride; ++i) {
          const int t = i / y_stride, n = i % y_stride;
          if (n >= rows) {
            ASSERT_EQ((*after)[i], before[i]) << "written beyond the row";
            continue;
          }
          const auto dot = testing::Dot(&x[t * x_stride], &exact[n * columns], columns,
                                        testing::RoundingError(type));
          const double want =
              dot.value + (float_output ? bias[n] : 0.0f) + (add ? before[i] : 0.0f);
          const double rounding =
              float_output ? 1e-6 : std::abs(want) * testing::RoundingError(type) + 1e-6;
          ASSERT_NEAR((*after)[i], want, dot.tolerance + rounding)
              << "row " << t << " output " << n;
        }
      }
    }
  }
}

TEST_F(MatmulTest, ARowDependsOnItsClassOnly) {
  std::mt19937 random(2);
  constexpr int kColumns = 256, kMost = 260;
  const auto matmul = New(ElementType::kBF16, /*scratch_bytes=*/1 << 20);
  const auto x = testing::RandomInputs(ElementType::kBF16, kMost, kColumns, random);
  for (const DType dtype : {DType::kBF16, DType::kQ4_1}) {
    SCOPED_TRACE(checkpoint::DTypeName(dtype));
    const testing::RandomMatrix matrix(dtype, 48, kColumns, random);
    const DeviceLinear linear = LinearOf(matrix.tensor(), ElementType::kBF16);
    const WeightFormat format = linear.parts.front().view().format;
    RowClass last;
    std::vector<float> reference;
    for (const int num_rows :
         {260, 257, 256, 200, 129, 128, 127, 100, 65, 64, 40, 33, 17, 16, 9, 8, 6, 4, 3, 1}) {
      const auto y = Run(*matmul, linear, {.num_rows = num_rows, .float_output = true}, x,
                         std::vector<float>(num_rows * 48));
      ASSERT_TRUE(y.ok()) << y.status().ToString();
      if (ClassOf(format, num_rows) != last) {  // the most rows of a class come first
        last = ClassOf(format, num_rows);
        reference = *y;
      }
      EXPECT_TRUE(std::equal(y->begin(), y->end(), reference.begin())) << num_rows << " rows";
    }
  }
}

TEST_F(MatmulTest, ARowDependsOnNothingElseInOneClass) {
  std::mt19937 random(8);
  constexpr int kColumns = 128, kMost = 150, kOutputs = 20;
  const auto matmul = Matmul::Create({.type = ElementType::kF16, .one_class = true});
  ASSERT_TRUE(matmul.ok());
  const auto x = testing::RandomInputs(ElementType::kF16, kMost, kColumns, random);
  for (const DType dtype : {DType::kF16, DType::kQ4_0}) {
    SCOPED_TRACE(checkpoint::DTypeName(dtype));
    const testing::RandomMatrix matrix(dtype, kOutputs, kColumns, random);
    const DeviceLinear linear = LinearOf(matrix.tensor(), ElementType::kF16);
    std::vector<float> all;
    for (const int num_rows : {kMost, 65, 20, 9, 5, 2, 1}) {
      const auto y = Run(**matmul, linear, {.num_rows = num_rows, .float_output = true}, x,
                         std::vector<float>(num_rows * kOutputs));
      ASSERT_TRUE(y.ok()) << y.status().ToString();
      if (all.empty()) all = *y;
      EXPECT_TRUE(std::equal(y->begin(), y->end(), all.begin())) << num_rows << " rows";
    }
  }
}

TEST_F(MatmulTest, WritesTheMapsOfALinearSideBySide) {
  std::mt19937 random(3);
  constexpr int kColumns = 64;
  const auto matmul = New(ElementType::kF16);
  const testing::RandomMatrix q(DType::kQ4_0, 24, kColumns, random);
  const testing::RandomMatrix k(DType::kQ8_0, 8, kColumns, random);
  for (const int num_rows : {2, 30, 80}) {
    SCOPED_TRACE(num_rows);
    const auto bias = testing::RandomInputs(ElementType::kF16, 1, 32, random);
    DeviceLinear linear = LinearOf(q.tensor(), ElementType::kF16, bias);
    linear.parts.push_back(Upload(k.tensor(), ElementType::kF16));
    const auto x = testing::RandomInputs(ElementType::kF16, num_rows, kColumns, random);

    const auto y =
        Run(*matmul, linear, {.num_rows = num_rows, .float_output = true, .add_bias = true}, x,
            std::vector<float>(num_rows * 32));

    ASSERT_TRUE(y.ok()) << y.status().ToString();
    auto exact = testing::ExactWeights(q.tensor());
    const auto second = testing::ExactWeights(k.tensor());
    exact.insert(exact.end(), second.begin(), second.end());
    for (int i = 0; i < num_rows * 32; ++i) {
      const auto dot = testing::Dot(&x[i / 32 * kColumns], &exact[i % 32 * kColumns], kColumns,
                                    testing::RoundingError(ElementType::kF16));
      ASSERT_NEAR((*y)[i], dot.value + bias[i % 32], dot.tolerance + 1e-6) << i;
    }
  }
}

TEST_F(MatmulTest, MultipliesTheRowsOfExperts) {
  std::mt19937 random(4);
  constexpr int kExperts = 3, kOutputs = 16, kColumns = 96, kPairs = 12;
  const auto matmul = New(ElementType::kBF16);
  const testing::RandomMatrix matrix(DType::kQ4_1, kExperts * kOutputs, kColumns, random);
  ExpertLinear experts;
  experts.linear = LinearOf(matrix.tensor(), ElementType::kBF16);
  experts.num_experts = kExperts;
  experts.rows_per_expert = kOutputs;
  const auto x = testing::RandomInputs(ElementType::kBF16, kPairs, kColumns, random);
  const std::vector<int> offsets = {0, 5, 5, 11}, rows = {3, 1, 0, 7, 9, 4, 4, 2, 1, 0, 6, 0};
  const auto device_x = ToDevice(testing::AllToBits(ElementType::kBF16, x));
  const auto device_offsets = ToDevice(offsets), device_rows = ToDevice(rows);
  const auto y = ToDevice(std::vector<float>(kPairs * kOutputs, -1.0f));

  const absl::Status status = matmul->MultiplyExperts(experts,
                                                      {.x = device_x.data(),
                                                       .pair_rows = device_rows.as<int>(),
                                                       .offsets = device_offsets.as<int>(),
                                                       .num_pairs = kPairs,
                                                       .y = y.data(),
                                                       .float_output = true},
                                                      stream());

  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto got = ToHost<float>(y, kPairs * kOutputs);
  const auto exact = testing::ExactWeights(matrix.tensor());
  for (int i = 0; i < kPairs * kOutputs; ++i) {
    const int pair = i / kOutputs, expert = pair < 5 ? 0 : 2;
    if (pair == 11) {
      EXPECT_EQ(got[i], -1.0f);
      continue;
    }
    const auto dot = testing::Dot(&x[rows[pair] * kColumns],
                                  &exact[(expert * kOutputs + i % kOutputs) * kColumns], kColumns,
                                  testing::RoundingError(ElementType::kBF16));
    ASSERT_NEAR(got[i], dot.value, dot.tolerance + 1e-6) << i;
  }
}

TEST_F(MatmulTest, IsRecordedIntoAGraphAfterPrepare) {
  std::mt19937 random(5);
  constexpr int kColumns = 64, kOutputs = 40, kRows = 70;
  const auto matmul = New(ElementType::kBF16);
  const testing::RandomMatrix matrix(DType::kQ8_0, kOutputs, kColumns, random);
  const DeviceLinear linear = LinearOf(matrix.tensor(), ElementType::kBF16);
  const auto x = testing::RandomInputs(ElementType::kBF16, kRows, kColumns, random);
  const auto expected = Run(*matmul, linear, {.num_rows = kRows, .float_output = true}, x,
                            std::vector<float>(kRows * kOutputs));
  ASSERT_TRUE(expected.ok()) << expected.status().ToString();
  const auto device_x = ToDevice(testing::AllToBits(ElementType::kBF16, x));
  const auto y = OnDevice(kRows * kOutputs * sizeof(float));
  const Product product = {
      .x = device_x.data(), .num_rows = kRows, .y = y.data(), .float_output = true};
  ASSERT_TRUE(matmul->Prepare(linear, product, kRows).ok());

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  testing::ExpectCuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  const absl::Status status = matmul->Multiply(linear, product, stream());
  testing::ExpectCuda(cudaStreamEndCapture(stream(), &graph));
  ASSERT_TRUE(status.ok()) << status.ToString();
  testing::ExpectCuda(cudaGraphInstantiate(&executable, graph, 0));
  testing::ExpectCuda(cudaGraphLaunch(executable, stream()));

  EXPECT_EQ(ToHost<float>(y, kRows * kOutputs), *expected);
  testing::ExpectCuda(cudaGraphExecDestroy(executable));
  testing::ExpectCuda(cudaGraphDestroy(graph));
}

TEST_F(MatmulTest, RefusesMisshapenProducts) {
  std::mt19937 random(6);
  const auto matmul = New(ElementType::kBF16, /*scratch_bytes=*/1 << 10);
  const testing::RandomMatrix matrix(DType::kBF16, 8, 64, random),
      big(DType::kQ8_0, 8, 2048, random);
  const DeviceLinear linear = LinearOf(matrix.tensor(), ElementType::kBF16);
  const DeviceLinear unfit = LinearOf(big.tensor(), ElementType::kBF16);
  const DeviceLinear other = LinearOf(matrix.tensor(), ElementType::kF16);
  const auto memory = OnDevice(1 << 14);
  const Product good = {.x = memory.data(), .num_rows = 1, .y = memory.data() + 8192};
  const auto expect_refused = [&](const DeviceLinear& map, const auto& change) {
    Product product = good;
    change(product);
    const absl::Status status = matmul->Multiply(map, product, stream());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status.ToString();
  };
  expect_refused(linear, [](Product& p) { p.num_rows = -1; });
  expect_refused(linear, [](Product& p) { p.x_stride = 60; });
  expect_refused(linear, [](Product& p) { p.x_stride = 68; });
  expect_refused(linear, [](Product& p) { p.y_stride = 7; });
  expect_refused(linear, [](Product& p) { p.x = nullptr; });
  expect_refused(linear, [&](Product& p) { p.y = memory.data() + 4; });
  expect_refused(linear, [](Product& p) { p.add_bias = true; });
  expect_refused(other, [](Product&) {});
  expect_refused(unfit, [](Product&) {});
}

}  // namespace
}  // namespace baton::engine::cuda
