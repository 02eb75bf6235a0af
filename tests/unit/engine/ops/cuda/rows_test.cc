#include "engine/ops/cuda/kernels/rows.h"

#include "checkpoint/tensor.h"
#include "tests/support/cuda_test.h"
#include "tests/support/kernel_values.h"

namespace baton::engine::cuda {
namespace {

template <class T>
class RowsTest : public testing::CudaTest {};
TYPED_TEST_SUITE(RowsTest, testing::KernelTypes);

TYPED_TEST(RowsTest, GathersListedRowsAndLeavesNegativeOnes) {
  using T = TypeParam;
  std::mt19937 random(8);
  constexpr int kColumns = 1544, kRows = 9;
  const auto x = testing::RoundAll<T>(testing::NormalFloats(kRows * kColumns, random));
  const std::vector<int> rows = {8, 0, -1, 3, 3};
  const auto d_x = this->ToDevice(x);
  const auto d_rows = this->ToDevice(rows);
  const auto out = this->ToDevice(std::vector<T>(rows.size() * kColumns, testing::RoundTo<T>(7)));

  testing::ExpectCuda(GatherRows(d_x.template as<T>(), d_rows.template as<int>(),
                                 static_cast<int>(rows.size()), kColumns, out.template as<T>(),
                                 this->stream()));

  const auto got = testing::FloatsOf(this->template ToHost<T>(out, rows.size() * kColumns));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (int i = 0; i < kColumns; ++i) {
      EXPECT_EQ(got[r * kColumns + i],
                rows[r] < 0 ? 7.0f : testing::FloatOf(x[rows[r] * kColumns + i]));
    }
  }
}

TYPED_TEST(RowsTest, RefusesRowsThatAreNoMultipleOf16Bytes) {
  using T = TypeParam;
  const T* x = nullptr;
  T* out = nullptr;
  EXPECT_EQ(GatherRows(x, nullptr, 1, 3, out, this->stream()), cudaErrorInvalidValue);
}

class CastTest : public testing::CudaTest {
 protected:
  template <class T>
  std::vector<std::uint16_t> CastBits(const std::vector<float>& x) {
    const auto d_x = ToDevice(x);
    const auto out = OnDevice(x.size() * sizeof(T));
    testing::ExpectCuda(Cast(d_x.as<float>(), x.size(), out.as<T>(), stream()));
    return ToHost<std::uint16_t>(out, x.size());
  }
};

TEST_F(CastTest, RoundsAsTheCheckpointsConversionsDo) {
  std::mt19937 random(9);
  for (const std::size_t count : {1u, 7u, 8u, 9u, 5003u}) {
    SCOPED_TRACE(count);
    auto x = testing::NormalFloats(count, random, 100);
    x[0] = 1e6f;
    const auto bf16 = CastBits<__nv_bfloat16>(x);
    const auto f16 = CastBits<__half>(x);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(bf16[i], checkpoint::FloatToBFloat16(x[i])) << x[i];
      ASSERT_EQ(f16[i], checkpoint::FloatToHalf(x[i])) << x[i];
    }
  }
}

}  // namespace
}  // namespace baton::engine::cuda
