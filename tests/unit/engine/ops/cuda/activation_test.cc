#include "engine/ops/cuda/kernels/activation.h"

#include "engine/ops/cuda/kernels/softcap.h"
#include "engine/ops/reference/activation.h"
#include "engine/ops/reference/softcap.h"
#include "tests/support/cuda_test.h"
#include "tests/support/kernel_values.h"

namespace baton::engine::cuda {
namespace {

template <class T>
class ActivationTest : public testing::CudaTest {
 protected:
  static constexpr GateActivation kAll[] = {GateActivation::kSilu, GateActivation::kGeluTanh,
                                            GateActivation::kGelu};
  static Activation OfReference(GateActivation activation) {
    switch (activation) {
      case GateActivation::kSilu:
        return Activation::kSilu;
      case GateActivation::kGeluTanh:
        return Activation::kGeluTanh;
      case GateActivation::kGelu:
        break;
    }
    return Activation::kGelu;
  }
};
TYPED_TEST_SUITE(ActivationTest, testing::KernelTypes);

TYPED_TEST(ActivationTest, EqualsTheReferenceWithBiasesPerExpertAndUnusedRows) {
  using T = TypeParam;
  std::mt19937 random(6);
  for (const GateActivation activation : TestFixture::kAll) {
    for (const int intermediate : {8, 48, 1536}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(activation) << ", " << intermediate);
      constexpr int kRows = 7, kUsed = 5, kExperts = 3;
      const std::size_t width = 2 * static_cast<std::size_t>(intermediate);
      const auto gate_up = testing::RoundAll<T>(testing::NormalFloats(kRows * width, random, 3));
      const auto bias = testing::NormalFloats(kExperts * width, random);
      std::vector<int> bias_rows(kRows);
      for (int& row : bias_rows) row = static_cast<int>(random() % kExperts);
      const auto d_gate_up = this->ToDevice(gate_up);
      const auto d_bias = this->ToDevice(bias);
      const auto d_bias_rows = this->ToDevice(bias_rows);
      const auto d_used = this->ToDevice(std::vector<int>{kUsed});
      const auto out = this->ToDevice(
          std::vector<T>(static_cast<std::size_t>(kRows) * intermediate, testing::RoundTo<T>(7)));
      const GatedRows rows{.num_rows = kRows,
                           .intermediate = intermediate,
                           .num_used = d_used.template as<int>(),
                           .bias = d_bias.template as<float>(),
                           .bias_rows = d_bias_rows.template as<int>()};

      testing::ExpectCuda(GatedActivation(activation, rows, d_gate_up.template as<T>(),
                                          out.template as<T>(), this->stream()));

      const auto got =
          this->template ToHost<T>(out, static_cast<std::size_t>(kRows) * intermediate);
      for (int row = 0; row < kRows; ++row) {
        for (int i = 0; i < intermediate; ++i) {
          const auto input = [&](std::size_t column) {
            return testing::FloatOf(gate_up[row * width + column]) +
                   bias[bias_rows[row] * width + column];
          };
          double want = 7;
          if (row < kUsed) {
            want = double{reference::Activate(TestFixture::OfReference(activation), input(i))} *
                   input(intermediate + i);
          }
          testing::ExpectRounded(got[row * intermediate + i], want);
        }
      }
    }
  }
}

TYPED_TEST(ActivationTest, KeepsItsDigitsFarOutAndStaysFinite) {
  using T = TypeParam;
  for (const GateActivation activation : TestFixture::kAll) {
    SCOPED_TRACE(static_cast<int>(activation));
    const std::vector<float> gates = {-60000, -100, -12, -6,  -4,  -1e-6, 0, 1e-6,
                                      0.5,    4,    12,  100, 6e4, -2,    2, -0.0f};
    const int intermediate = static_cast<int>(gates.size());
    std::vector<float> gate_up = gates;
    gate_up.resize(2 * gates.size(), 1.0f);
    const auto rounded = testing::RoundAll<T>(gate_up);
    const auto d_gate_up = this->ToDevice(rounded);
    const auto out = this->OnDevice(gates.size() * sizeof(T));

    testing::ExpectCuda(GatedActivation(activation, {.num_rows = 1, .intermediate = intermediate},
                                        d_gate_up.template as<T>(), out.template as<T>(),
                                        this->stream()));

    const auto got = this->template ToHost<T>(out, gates.size());
    for (int i = 0; i < intermediate; ++i) {
      const float gate = testing::FloatOf(rounded[i]);
      const double want = reference::Activate(TestFixture::OfReference(activation), gate);
      EXPECT_TRUE(std::isfinite(testing::FloatOf(got[i]))) << gate;
      // The exponent of the tail, up to gate^2, carries the rounding of its argument.
      const double share = testing::HalfUlp<T>() + 2e-6 + 1.2e-7 * gate * gate;
      const double smallest = std::is_same_v<T, __half> ? 3e-8 : 1e-38;
      EXPECT_NEAR(testing::FloatOf(got[i]), want, std::abs(want) * share + smallest) << gate;
    }
  }
}

TYPED_TEST(ActivationTest, RefusesShapesItCannotCompute) {
  using T = TypeParam;
  const T* from = nullptr;
  T* to = nullptr;
  EXPECT_EQ(GatedActivation(GateActivation::kSilu, {.num_rows = 1, .intermediate = 12}, from, to,
                            this->stream()),
            cudaErrorInvalidValue);
  EXPECT_EQ(GatedActivation(GateActivation::kSilu, {.num_rows = 0, .intermediate = 16}, from, to,
                            this->stream()),
            cudaSuccess);
}

class SoftCapTest : public testing::CudaTest {};

TEST_F(SoftCapTest, EqualsTheReferenceForAnyCount) {
  std::mt19937 random(7);
  for (const std::size_t count : {1u, 3u, 4u, 1027u, 50000u}) {
    SCOPED_TRACE(count);
    auto values = testing::NormalFloats(count, random, 40);
    const auto device_values = ToDevice(values);

    testing::ExpectCuda(SoftCap(30.0f, count, device_values.as<float>(), stream()));
    testing::ExpectCuda(SoftCap(0.0f, count, device_values.as<float>(), stream()));

    const auto got = ToHost<float>(device_values, count);
    reference::SoftCap(30.0f, count, values.data());
    for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(got[i], values[i], 30 * 3e-7);
  }
}

}  // namespace
}  // namespace baton::engine::cuda
