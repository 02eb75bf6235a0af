#include "tests/unit/cuda_emulation/vocabulary.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tests/support/cuda_test.h"

namespace baton::vocabulary {
namespace {

using std::uint32_t;

class VocabularyTest : public testing::CudaTest {
 protected:
  std::mt19937 random_{1};
};

template <class T>
class VocabularyTypedTest : public VocabularyTest {};
using HalfTypes = ::testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(VocabularyTypedTest, HalfTypes);

TYPED_TEST(VocabularyTypedTest, TileIsAProductOfMatrices) {
  std::vector<TypeParam> a(16 * 16), b(16 * 8);
  const auto fill = [this](std::vector<TypeParam>& values) {
    for (TypeParam& value : values) {
      value = static_cast<TypeParam>(static_cast<float>(this->random_() % 17) - 8.0f);
    }
  };
  fill(a);
  fill(b);
  const auto out = this->OnDevice(16 * 8 * sizeof(float));
  const auto device_a = this->ToDevice(a), device_b = this->ToDevice(b);

  testing::ExpectCuda(MultiplyTile(device_a.template as<TypeParam>(),
                                   device_b.template as<TypeParam>(), out.template as<float>(),
                                   this->stream()));

  const auto got = this->template ToHost<float>(out, 16 * 8);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float want = 1.0f + static_cast<float>(j % 2) + (i < 8 ? 0.0f : 2.0f);
      for (int k = 0; k < 16; ++k) {
        want += static_cast<float>(a[i * 16 + k]) * static_cast<float>(b[k * 8 + j]);
      }
      EXPECT_EQ(got[i * 8 + j], want) << i << ", " << j;
    }
  }
}

TEST_F(VocabularyTest, TileOfBytesIsAProductOfMatrices) {
  std::vector<std::int8_t> a(16 * 32), b(32 * 8);
  for (auto& value : a) value = static_cast<std::int8_t>(random_());
  for (auto& value : b) value = static_cast<std::int8_t>(random_());
  const auto out = OnDevice(16 * 8 * sizeof(int));
  const auto device_a = ToDevice(a), device_b = ToDevice(b);

  testing::ExpectCuda(MultiplyBytes(device_a.as<std::int8_t>(), device_b.as<std::int8_t>(),
                                    out.as<int>(), stream()));

  const auto got = ToHost<int>(out, 16 * 8);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      int want = 1 + j % 2 + (i < 8 ? 0 : 2);
      for (int k = 0; k < 32; ++k) want += a[i * 32 + k] * b[k * 8 + j];
      EXPECT_EQ(got[i * 8 + j], want) << i << ", " << j;
    }
  }
}

TEST_F(VocabularyTest, LoadedMatricesLieInTheLanesOfTheIsa) {
  std::vector<std::uint16_t> in(32 * 8);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint16_t>(i);
  const auto device_in = ToDevice(in);
  for (const int matrices : {2, 4}) {
    for (const bool transpose : {false, true}) {
      SCOPED_TRACE(matrices * 10 + transpose);
      const auto out = OnDevice(32 * matrices * sizeof(uint32_t));
      testing::ExpectCuda(LoadMatrices(device_in.as<std::uint16_t>(), matrices, transpose,
                                       out.as<uint32_t>(), stream()));
      const auto got = ToHost<uint32_t>(out, 32 * matrices);
      for (int lane = 0; lane < 32; ++lane) {
        for (int matrix = 0; matrix < matrices; ++matrix) {
          for (int half = 0; half < 2; ++half) {
            int row = lane / 4, column = lane % 4 * 2 + half;
            if (transpose) std::swap(row, column);
            EXPECT_EQ(got[lane * matrices + matrix] >> 16 * half & 0xffffu,
                      in[(matrix * 8 + row) * 8 + column]);
          }
        }
      }
    }
  }
}

TEST_F(VocabularyTest, CopiesFillWithZeros) {
  std::vector<unsigned char> in(32 * 16);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i % 250 + 1);
  const auto device_in = ToDevice(in);
  for (const int bytes : {4, 8, 16}) {
    for (int valid = 0; valid <= bytes; valid += 2) {
      const auto out = OnDevice(32 * bytes);
      testing::ExpectCuda(CopyParts(device_in.data(), bytes, valid, out.data(), stream()));
      const auto got = ToHost<unsigned char>(out, 32 * bytes);
      for (int i = 0; i < 32 * bytes; ++i) {
        EXPECT_EQ(got[i], i % bytes < valid ? in[i] : 0) << bytes << ", " << valid << ", " << i;
      }
    }
  }
}

// The values that a device gave are what these formulas say: the test runs there too.
TEST_F(VocabularyTest, IntegersAndConversions) {
  const auto out = OnDevice(32 * kNumWords * sizeof(uint32_t));
  testing::ExpectCuda(Integers(out.as<uint32_t>(), stream()));
  const auto got = ToHost<uint32_t>(out, 32 * kNumWords);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    SCOPED_TRACE(lane);
    const uint32_t x = 0x9e3779b9u * (lane + 1), y = 0x85ebca6bu * (lane + 3);
    const uint32_t* at = got.data() + lane * kNumWords;
    int signed_dot = 5;
    uint32_t unsigned_dot = 5, reversed = 0;
    for (int i = 0; i < 4; ++i) {
      signed_dot += static_cast<std::int8_t>(x >> 8 * i) * static_cast<std::int8_t>(y >> 8 * i);
      unsigned_dot += (x >> 8 * i & 255u) * (y >> 8 * i & 255u);
    }
    for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
    EXPECT_EQ(at[0], static_cast<uint32_t>(signed_dot));
    EXPECT_EQ(at[1], unsigned_dot);
    EXPECT_EQ(at[2], (x & 0xffffu) | y << 16);
    uint32_t signs = 0;
    for (int i = 0; i < 4; ++i) signs |= (x >> (8 * i + 7) & 1u ? 255u : 0u) << 8 * i;
    EXPECT_EQ(at[3], signs);
    EXPECT_EQ(at[4], (x & y) | lane);
    EXPECT_EQ(at[5], (x & y) ^ lane);
    EXPECT_EQ(at[6], static_cast<uint32_t>(std::uint64_t{x} * y >> 32));
    EXPECT_EQ(at[7], reversed);
    EXPECT_EQ(at[8], static_cast<uint32_t>(
                         std::countl_zero(static_cast<uint32_t>(static_cast<int>(x) >> lane))));
    const uint32_t shifted = x << lane;
    EXPECT_EQ(at[9], shifted == 0 ? 0u : static_cast<uint32_t>(std::countr_zero(shifted)) + 1);
    EXPECT_EQ(at[10], static_cast<uint32_t>(std::popcount(x)));
    const uint32_t shift = (lane + 1) % 32;
    const std::uint64_t both = std::uint64_t{y} << 32 | x;
    EXPECT_EQ(at[11], static_cast<uint32_t>(both << shift >> 32));
    EXPECT_EQ(at[12], static_cast<uint32_t>(both >> shift));
    const float value = (static_cast<float>(lane) - 15.5f) * 1.5f;
    EXPECT_EQ(at[13], static_cast<uint32_t>(static_cast<int>(std::nearbyint(value))));
    EXPECT_EQ(at[14], static_cast<uint32_t>(static_cast<int>(value)));
    EXPECT_EQ(at[15], value < 0 ? 0x80000000u : 0x7fffffffu);
    const __half third = __float2half_rn(value / 3.0f);
    EXPECT_EQ(at[16], std::bit_cast<uint32_t>(__half2float(third)));
    EXPECT_EQ(at[17], std::bit_cast<uint32_t>(__bfloat162float(__float2bfloat16_rn(value / 3.0f))));
    const double fused = double{__half2float(third)} * __half2float(__float2half_rn(0.7f)) +
                         __half2float(__float2half_rn(0.3f));
    EXPECT_EQ(at[18], std::bit_cast<uint32_t>(__half2float(__double2half(fused))));
    EXPECT_EQ(at[19], std::bit_cast<uint32_t>(std::fma(value, 0.7f, 0.3f)));
  }
}

TEST_F(VocabularyTest, ShufflesVotesAndReductions) {
  const auto out = OnDevice(32 * kNumWords * sizeof(uint32_t));
  testing::ExpectCuda(Lanes(out.as<uint32_t>(), stream()));
  const auto got = ToHost<uint32_t>(out, 32 * kNumWords);
  const auto x = [](uint32_t lane) { return 0x9e3779b9u * (lane + 1); };
  uint32_t sum = 0, greatest = 0, ballot = 0;
  int least = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    sum += x(lane);
    greatest = std::max(greatest, x(lane));
    least = std::min(least, static_cast<int>(x(lane)));
    if (lane % 3 == 0) ballot |= 1u << lane;
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    SCOPED_TRACE(lane);
    const uint32_t* at = got.data() + lane * kNumWords;
    const uint32_t in_eight = lane % 8;
    EXPECT_EQ(at[0], x(5));
    EXPECT_EQ(at[1], x(lane - in_eight + 3));
    EXPECT_EQ(at[2], x(lane < 3 ? lane : lane - 3));
    EXPECT_EQ(at[3], x(in_eight < 2 ? lane : lane - 2));
    EXPECT_EQ(at[4], x(lane > 28 ? lane : lane + 3));
    EXPECT_EQ(at[5], x(in_eight > 5 ? lane : lane + 2));
    EXPECT_EQ(at[6], x(lane ^ 7));
    EXPECT_EQ(at[7], x(lane ^ 3));
    EXPECT_EQ(at[8], ballot);
    EXPECT_NE(at[9], 0u);
    EXPECT_EQ(at[10], 0u);
    uint32_t equal = 0;
    for (uint32_t other = lane % 5; other < 32; other += 5) equal |= 1u << other;
    EXPECT_EQ(at[11], equal);
    EXPECT_EQ(at[12], sum);
    EXPECT_EQ(at[13], greatest);
    EXPECT_EQ(at[14], static_cast<uint32_t>(least));
    EXPECT_EQ(at[15], x(lane < 16 ? lane ^ 1 : lane ^ 2));
  }
}

}  // namespace
}  // namespace baton::vocabulary
