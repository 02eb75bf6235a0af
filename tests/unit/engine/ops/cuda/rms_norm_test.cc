#include "engine/ops/cuda/kernels/rms_norm.h"

#include "engine/ops/reference/rms_norm.h"
#include "tests/support/cuda_test.h"
#include "tests/support/kernel_values.h"

namespace baton::engine::cuda {
namespace {

template <class T>
class RmsNormTest : public testing::CudaTest {};
TYPED_TEST_SUITE(RmsNormTest, testing::KernelTypes);

TYPED_TEST(RmsNormTest, EqualsTheReferenceOnRandomShapes) {
  using T = TypeParam;
  std::mt19937 random(1);
  for (const int hidden : {8, 64, 576, 2048, 4104}) {
    SCOPED_TRACE(hidden);
    const int num_rows = 1 + static_cast<int>(random() % 5);
    std::vector<float> x =
        testing::NormalFloats(static_cast<std::size_t>(num_rows) * hidden, random);
    x[0] = 300.0f;  // among small ones
    const std::vector<float> weight = testing::NormalFloats(hidden, random);
    const auto device_x = this->ToDevice(x), device_weight = this->ToDevice(weight);
    const auto out = this->OnDevice(x.size() * sizeof(T));
    const int* no_rows = nullptr;
    std::vector<float> want(hidden);

    testing::UnderSeveralSchedules([&] {
      testing::ExpectCuda(RmsNorm(device_x.template as<float>(), no_rows, num_rows,
                                  device_weight.template as<float>(), hidden, 1e-5f,
                                  out.template as<T>(), this->stream()));

      const auto got = this->template ToHost<T>(out, x.size());
      for (int row = 0; row < num_rows; ++row) {
        const std::size_t begin = static_cast<std::size_t>(row) * hidden;
        reference::RmsNormRow({x.data() + begin, static_cast<std::size_t>(hidden)}, weight, 1e-5f,
                              want.data());
        for (int i = 0; i < hidden; ++i) testing::ExpectRounded(got[begin + i], want[i]);
      }
    });
  }
}

TYPED_TEST(RmsNormTest, TakesListedRowsAndLeavesNegativeOnes) {
  using T = TypeParam;
  std::mt19937 random(2);
  constexpr int kHidden = 96;
  const std::vector<float> x = testing::NormalFloats(6 * kHidden, random);
  const std::vector<float> weight = testing::NormalFloats(kHidden, random);
  const std::vector<int> rows = {4, -1, 0, 4};
  const auto device_x = this->ToDevice(x), device_weight = this->ToDevice(weight);
  const auto device_rows = this->ToDevice(rows);
  const auto all = this->OnDevice(x.size() * sizeof(T));
  const auto out = this->ToDevice(std::vector<T>(rows.size() * kHidden, testing::RoundTo<T>(7)));
  const int* no_rows = nullptr;

  testing::ExpectCuda(RmsNorm(device_x.template as<float>(), no_rows, 6,
                              device_weight.template as<float>(), kHidden, 1e-5f,
                              all.template as<T>(), this->stream()));
  testing::ExpectCuda(RmsNorm(device_x.template as<float>(), device_rows.template as<int>(), 4,
                              device_weight.template as<float>(), kHidden, 1e-5f,
                              out.template as<T>(), this->stream()));

  const auto every = testing::FloatsOf(this->template ToHost<T>(all, x.size()));
  const auto got = testing::FloatsOf(this->template ToHost<T>(out, rows.size() * kHidden));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (int i = 0; i < kHidden; ++i) {
      EXPECT_EQ(got[r * kHidden + i], rows[r] < 0 ? 7.0f : every[rows[r] * kHidden + i]);
    }
  }
}

}  // namespace
}  // namespace baton::engine::cuda
