#include "engine/ops/cuda/kernels/grouped_matmul.h"

#include <algorithm>
#include <numeric>

#include "tests/support/device_weights.h"
#include "tests/support/random_matrix.h"

namespace baton::engine::cuda {
namespace {

using checkpoint::DType;

constexpr DType kForms[] = {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kInt4};

// Groups of rows, and which rows of x they read.
struct Groups {
  std::vector<int> offsets;
  std::vector<int> x_rows;
  int num_rows() const { return offsets.back(); }
};

class GroupedMatmulTest : public testing::DeviceWeightsTest {
 protected:
  static Groups RandomGroups(int num_groups, int most, int num_x_rows, std::mt19937& random) {
    Groups groups{{0}, {}};
    for (int g = 0; g < num_groups; ++g) {
      // Empty ones too.
      groups.offsets.push_back(groups.offsets.back() + static_cast<int>(random() % (most + 1)));
    }
    for (int i = 0; i < groups.num_rows(); ++i) groups.x_rows.push_back(random() % num_x_rows);
    return groups;
  }

  // y as floats; `spare` rows beyond the groups' are given room, as a step's buffers do.
  std::vector<float> Run(GroupedArguments arguments, const Groups& groups,
                         const std::vector<float>& x, const std::vector<float>& bias,
                         const std::vector<float>& y, int spare) {
    const ElementType type = arguments.weights.type;
    const auto device_x = ToDevice(testing::AllToBits(type, x));
    const auto put = [&](const std::vector<float>& values) {
      return arguments.float_output ? ToDevice(values) : ToDevice(testing::AllToBits(type, values));
    };
    const auto device_bias = put(bias.empty() ? std::vector<float>(1) : bias), device_y = put(y);
    std::vector<int> x_rows = groups.x_rows;
    x_rows.resize(x_rows.size() + spare, 0);
    const auto offsets = ToDevice(groups.offsets), rows = ToDevice(x_rows);
    arguments.offsets = offsets.as<int>();
    arguments.x_rows = rows.as<int>();
    arguments.x = device_x.data();
    arguments.num_rows = groups.num_rows() + spare;
    arguments.bias = bias.empty() ? nullptr : device_bias.data();
    arguments.y = device_y.data();
    testing::ExpectCuda(GroupedMatmul(arguments, stream()));
    if (arguments.float_output) return ToHost<float>(device_y, y.size());
    std::vector<float> result;
    for (const std::uint16_t bits : ToHost<std::uint16_t>(device_y, y.size())) {
      result.push_back(testing::FromBits(type, bits));
    }
    return result;
  }
};

// Weights as the kernel multiplies them.
std::vector<float> RoundedWeights(const checkpoint::Tensor& tensor, ElementType type) {
  std::vector<float> weights = testing::ExactWeights(tensor);
  for (float& w : weights) w = testing::Rounded(type, w);
  return weights;
}

struct Case {
  DType dtype;
  ElementType type;
  int num_groups, most, rows_per_group, columns;
  bool float_output, add;
};

TEST_F(GroupedMatmulTest, EqualsSumsInDouble) {
  std::mt19937 random(1);
  std::vector<Case> cases;
  for (const DType dtype : kForms) {
    for (const ElementType type : testing::kElementTypes) {
      cases.push_back({dtype, type, 5, 20, 40, 96, true, type == ElementType::kF16});
      cases.push_back({dtype, type, 2, 150, 72, 64, false, type == ElementType::kBF16});
    }
  }
  cases.push_back({DType::kBF16, ElementType::kBF16, 3, 70, 33, 40, true, false});
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(std::string(checkpoint::DTypeName(c.dtype)), " groups ", c.num_groups,
                              " of up to ", c.most));
    const testing::RandomMatrix matrix(c.dtype, c.num_groups * c.rows_per_group, c.columns, random);
    const DeviceMatrix weights = Upload(matrix.tensor(), c.type);
    const int x_stride = c.columns + 8, y_stride = c.rows_per_group + 1, num_x_rows = 30, spare = 7;
    const Groups groups = RandomGroups(c.num_groups, c.most, num_x_rows, random);
    const auto x = testing::RandomInputs(c.type, num_x_rows, x_stride, random);
    const auto bias = testing::RandomInputs(c.type, 1, weights.rows(), random);
    const auto before = testing::RandomInputs(c.type, groups.num_rows() + spare, y_stride, random);

    const auto after = Run({.weights = weights.view(),
                            .num_groups = c.num_groups,
                            .rows_per_group = c.rows_per_group,
                            .offsets = nullptr,
                            .x_rows = nullptr,
                            .x = nullptr,
                            .x_stride = x_stride,
                            .num_rows = 0,
                            .bias = nullptr,
                            .y = nullptr,
                            .y_stride = y_stride,
                            .float_output = c.float_output,
                            .add = c.add},
                           groups, x, bias, before, spare);

    const auto w = RoundedWeights(matrix.tensor(), c.type);
    int group = 0;
    for (int row = 0; row < groups.num_rows() + spare; ++row) {
      while (group < c.num_groups && row >= groups.offsets[group + 1]) ++group;
      for (int n = 0; n < y_stride; ++n) {
        const int at = row * y_stride + n;
        if (row >= groups.num_rows() || n >= c.rows_per_group) {
          ASSERT_EQ(after[at], before[at]) << "row " << row << " is no group's";
          continue;
        }
        const int output = group * c.rows_per_group + n;
        const auto dot =
            testing::Dot(&x[groups.x_rows[row] * x_stride], &w[output * c.columns], c.columns);
        const double want = dot.value + bias[output] + (c.add ? before[at] : 0.0f);
        const double rounding =
            c.float_output ? 1e-6 : std::abs(want) * testing::RoundingError(c.type) + 1e-6;
        ASSERT_NEAR(after[at], want, dot.tolerance + rounding) << "row " << row << " output " << n;
      }
    }
  }
}

// One group, whose rows are computed in tiles of 16 when few and of 64 when many.
TEST_F(GroupedMatmulTest, ARowDoesNotDependOnTheNumberOfRows) {
  std::mt19937 random(2);
  for (const DType dtype : kForms) {
    SCOPED_TRACE(checkpoint::DTypeName(dtype));
    constexpr int kOutputs = 24, kColumns = 160, kMost = 70;
    const testing::RandomMatrix matrix(dtype, kOutputs, kColumns, random);
    const DeviceMatrix weights = Upload(matrix.tensor(), ElementType::kBF16);
    const auto x = testing::RandomInputs(ElementType::kBF16, kMost, kColumns, random);
    const auto product = [&](int num_rows) {
      Groups groups{{0, num_rows}, std::vector<int>(num_rows)};
      std::iota(groups.x_rows.begin(), groups.x_rows.end(), 0);
      return Run({.weights = weights.view(),
                  .num_groups = 1,
                  .rows_per_group = kOutputs,
                  .offsets = nullptr,
                  .x_rows = nullptr,
                  .x = nullptr,
                  .x_stride = kColumns,
                  .num_rows = 0,
                  .bias = nullptr,
                  .y = nullptr,
                  .y_stride = kOutputs,
                  .float_output = true,
                  .add = false},
                 groups, x, {}, std::vector<float>(num_rows * kOutputs), 0);
    };

    const auto all = product(kMost);

    for (const int num_rows : {1, 15, 16, 17, 63}) {
      const auto some = product(num_rows);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << num_rows;
    }
  }
}

TEST_F(GroupedMatmulTest, FollowsTheColumnOrder) {
  std::mt19937 random(3);
  constexpr int kOutputs = 10, kColumns = 128, kRows = 20;
  const testing::RandomMatrix matrix(DType::kInt4, kOutputs, kColumns, random);
  std::vector<std::int32_t> order(kColumns);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  checkpoint::Tensor tensor = matrix.tensor();
  tensor.column_order = order;
  const DeviceMatrix weights = Upload(tensor, ElementType::kF16);
  const Groups groups = RandomGroups(1, kRows, kRows, random);
  const auto x = testing::RandomInputs(ElementType::kF16, kRows, kColumns, random);

  const auto y = Run({.weights = weights.view(),
                      .num_groups = 1,
                      .rows_per_group = kOutputs,
                      .offsets = nullptr,
                      .x_rows = nullptr,
                      .x = nullptr,
                      .x_stride = kColumns,
                      .num_rows = 0,
                      .bias = nullptr,
                      .y = nullptr,
                      .y_stride = kOutputs,
                      .float_output = true,
                      .add = false},
                     groups, x, {}, std::vector<float>(groups.num_rows() * kOutputs), 0);

  const auto w = RoundedWeights(tensor, ElementType::kF16);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto dot = testing::Dot(&x[groups.x_rows[i / kOutputs] * kColumns],
                                  &w[i % kOutputs * kColumns], kColumns);
    EXPECT_NEAR(y[i], dot.value, dot.tolerance + 1e-6);
  }
}

TEST_F(GroupedMatmulTest, RefusesShapesThatDisagree) {
  std::mt19937 random(4);
  const testing::RandomMatrix matrix(DType::kQ8_0, 8, 64, random);
  const DeviceMatrix weights = Upload(matrix.tensor(), ElementType::kF16);
  const auto offsets = ToDevice(std::vector<int>{0, 1, 2});
  const GroupedArguments good = {.weights = weights.view(),
                                 .num_groups = 2,
                                 .rows_per_group = 4,
                                 .offsets = offsets.as<int>(),
                                 .x_rows = nullptr,
                                 .x = nullptr,
                                 .x_stride = 64,
                                 .num_rows = 2,
                                 .bias = nullptr,
                                 .y = nullptr,
                                 .y_stride = 4,
                                 .float_output = true,
                                 .add = false};
  const auto expect_refused = [&](const auto& change) {
    GroupedArguments arguments = good;
    change(arguments);
    EXPECT_EQ(GroupedMatmul(arguments, stream()), cudaErrorInvalidValue);
  };
  expect_refused([](auto& a) { a.num_rows = -1; });
  expect_refused([](auto& a) { a.rows_per_group = 3; });
  expect_refused([](auto& a) { a.x_stride = 60; });
  expect_refused([](auto& a) { a.y_stride = 3; });
  expect_refused([](auto& a) { a.offsets = nullptr; });
}

}  // namespace
}  // namespace baton::engine::cuda
