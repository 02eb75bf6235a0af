#include "engine/ops/cuda/kernels/rms_norm.h"

#include <cmath>
#include <random>

#include "tests/support/cuda_test.h"

namespace baton::engine::cuda {
namespace {

class RmsNormTest : public testing::CudaTest {};

TEST_F(RmsNormTest, EqualsTheReferenceOnRandomShapes) {
  std::mt19937 random(1);
  for (const int hidden : {8, 64, 576, 4096}) {
    SCOPED_TRACE(hidden);
    const int num_rows = 1 + static_cast<int>(random() % 5);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(num_rows) * hidden), weight(hidden);
    for (float& value : x) value = normal(random);
    for (float& value : weight) value = normal(random);
    const auto device_x = ToDevice(x), device_weight = ToDevice(weight);
    const auto out = OnDevice(x.size() * sizeof(float));

    testing::ExpectCuda(RmsNorm(device_x.as<float>(), nullptr, num_rows, device_weight.as<float>(),
                                hidden, 1e-5f, out.as<float>(), stream()));

    const auto got = ToHost<float>(out, x.size());
    for (int row = 0; row < num_rows; ++row) {
      double sum = 0;
      for (int i = 0; i < hidden; ++i) sum += double{x[row * hidden + i]} * x[row * hidden + i];
      const double scale = 1 / std::sqrt(sum / hidden + 1e-5);
      for (int i = 0; i < hidden; ++i) {
        EXPECT_NEAR(got[row * hidden + i], x[row * hidden + i] * scale * weight[i], 1e-5)
            << "row " << row << ", column " << i;
      }
    }
  }
}

}  // namespace
}  // namespace baton::engine::cuda
