#include "engine/ops/cuda/kernels/add.h"

#include "engine/ops/reference/rms_norm.h"
#include "tests/support/cuda_test.h"
#include "tests/support/kernel_values.h"

namespace baton::engine::cuda {
namespace {

struct AddCase {
  int num_parts, num_rows, hidden;
  bool bias, norm;
};

class AddTest : public testing::CudaTest {
 protected:
  // What the reference makes of it: y = parts in order + bias, normalized, added to x.
  static std::vector<float> Want(const AddCase& c, const std::vector<float>& parts,
                                 const std::vector<float>& bias, const std::vector<float>& weight,
                                 std::vector<float> x) {
    std::vector<float> y(c.hidden);
    for (int row = 0; row < c.num_rows; ++row) {
      for (int i = 0; i < c.hidden; ++i) {
        y[i] = 0.0f;
        for (int part = 0; part < c.num_parts; ++part) {
          y[i] += parts[(static_cast<std::size_t>(part) * c.num_rows + row) * c.hidden + i];
        }
        if (c.bias) y[i] += bias[i];
      }
      if (c.norm) reference::RmsNormRow(y, weight, 1e-6f, y.data());
      for (int i = 0; i < c.hidden; ++i) x[static_cast<std::size_t>(row) * c.hidden + i] += y[i];
    }
    return x;
  }
};

TEST_F(AddTest, AddsPartsInRankOrderThenBiasThenNorm) {
  std::mt19937 random(3);
  for (const AddCase& c : {AddCase{1, 3, 8, false, false}, AddCase{4, 5, 576, false, false},
                           AddCase{8, 2, 1028, true, false}, AddCase{1, 4, 2048, false, true},
                           AddCase{3, 3, 100, true, true}, AddCase{0, 4, 64, true, false}}) {
    SCOPED_TRACE(::testing::Message() << c.num_parts << " parts, hidden " << c.hidden);
    const std::size_t count = static_cast<std::size_t>(c.num_rows) * c.hidden;
    const auto x = testing::NormalFloats(count, random, 10.0f);
    const auto parts = testing::NormalFloats(count * std::max(c.num_parts, 1), random);
    const auto bias = testing::NormalFloats(c.hidden, random);
    const auto weight = testing::NormalFloats(c.hidden, random);
    const auto want = Want(c, parts, bias, weight, x);
    const auto device_parts = ToDevice(parts), device_bias = ToDevice(bias);
    const auto device_weight = ToDevice(weight);
    const Addition addition{.parts = device_parts.as<float>(),
                            .num_parts = c.num_parts,
                            .part_stride = count,
                            .bias = c.bias ? device_bias.as<float>() : nullptr,
                            .norm_weight = c.norm ? device_weight.as<float>() : nullptr,
                            .eps = 1e-6f};

    testing::UnderSeveralSchedules([&] {
      const auto device_x = ToDevice(x);
      testing::ExpectCuda(
          AddToResidual(addition, c.num_rows, c.hidden, device_x.as<float>(), stream()));

      const auto got = ToHost<float>(device_x, count);
      if (!c.norm) {
        EXPECT_TRUE(testing::SameBits(got, want));  // the very sums, in the very order
      }
      for (std::size_t i = 0; i < count; ++i) testing::ExpectRounded(got[i], want[i]);
    });
  }
}

TEST_F(AddTest, RefusesShapesItCannotCompute) {
  float* x = nullptr;
  const float* parts = nullptr;
  EXPECT_EQ(AddToResidual({.parts = parts}, 1, 8, x, stream()), cudaErrorInvalidValue);
  EXPECT_EQ(AddToResidual({.num_parts = 0}, 1, 8, x, stream()), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace baton::engine::cuda
