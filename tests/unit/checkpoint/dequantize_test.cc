// Dequantization against gguf-py's values for one tensor of each type (tests/golden/quant), and
// against hand-made blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "checkpoint/gguf_file.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/tensor.h"
#include "tests/support/test_paths.h"

namespace baton::checkpoint {
namespace {

std::string LowerName(DType dtype) {
  std::string name(DTypeName(dtype));
  for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
  return name;
}

class DequantizeGoldenTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto types = MappedFile::Open(testing::GoldenDir() + "/quant/types.gguf");
    auto values = MappedFile::Open(testing::GoldenDir() + "/quant/types_f32.safetensors");
    ASSERT_TRUE(types.ok() && values.ok()) << types.status() << values.status();
    types_ = *std::move(types);
    values_ = *std::move(values);
  }
  std::unique_ptr<MappedFile> types_;
  std::unique_ptr<MappedFile> values_;
};

TEST_P(DequantizeGoldenTest, EqualsGgufPyExactly) {
  const auto stored = ParseGguf(types_->bytes());
  const auto expected = ParseSafetensors(values_->bytes());
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  const StoredTensor& tensor = stored->tensors.at(LowerName(GetParam()));
  const StoredTensor& floats = expected->at(LowerName(GetParam()));
  ASSERT_EQ(tensor.dtype, GetParam());
  const std::int64_t rows = tensor.shape[0];
  const std::int64_t columns = tensor.shape[1];
  const std::size_t row_bytes = tensor.data.size() / static_cast<std::size_t>(rows);

  std::vector<float> row(static_cast<std::size_t>(columns));
  std::vector<float> golden(static_cast<std::size_t>(columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto index = static_cast<std::size_t>(r);
    DequantizeRow(GetParam(), tensor.data.data() + index * row_bytes, columns, row.data());
    std::memcpy(golden.data(), floats.data.data() + index * golden.size() * sizeof(float),
                golden.size() * sizeof(float));
    for (std::size_t c = 0; c < row.size(); ++c) {
      ASSERT_EQ(row[c], golden[c]) << "row " << r << ", column " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, DequantizeGoldenTest,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0,
                                           DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                           DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ2_K,
                                           DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS,
                                           DType::kMXFP4),
                         [](const auto& param) { return std::string(DTypeName(param.param)); });

std::vector<float> Dequantize(DType dtype, const std::vector<std::uint8_t>& bytes) {
  EXPECT_EQ(bytes.size(), static_cast<std::size_t>(BlockBytes(dtype)));
  std::vector<float> out(static_cast<std::size_t>(BlockElements(dtype)));
  DequantizeRow(dtype, reinterpret_cast<const std::byte*>(bytes.data()), BlockElements(dtype),
                out.data());
  return out;
}

std::vector<std::uint8_t> Block(std::vector<std::uint8_t> head, std::size_t total,
                                std::uint8_t fill) {
  head.resize(total, fill);
  return head;
}

constexpr std::uint8_t kOneLow = 0x00, kOneHigh = 0x3C;  // 1.0 in half precision

TEST(DequantizeTest, Q4_0PutsLowHalvesFirst) {
  const auto out = Dequantize(DType::kQ4_0, Block({kOneLow, kOneHigh}, 18, 0xF1));

  EXPECT_EQ(out[0], 1 - 8);
  EXPECT_EQ(out[15], 1 - 8);
  EXPECT_EQ(out[16], 15 - 8);
  EXPECT_EQ(out[31], 15 - 8);
}

TEST(DequantizeTest, Q5_0TakesTheFifthBitOfEachElement) {
  // Fifth bits: element 0 and element 31.
  const auto out = Dequantize(DType::kQ5_0, Block({kOneLow, kOneHigh, 0x01, 0, 0, 0x80}, 22, 0x32));

  EXPECT_EQ(out[0], 2 + 16 - 16);
  EXPECT_EQ(out[1], 2 - 16);
  EXPECT_EQ(out[16], 3 - 16);
  EXPECT_EQ(out[31], 3 + 16 - 16);
}

TEST(DequantizeTest, Q8_0IsSigned) {
  const auto out = Dequantize(DType::kQ8_0, Block({kOneLow, kOneHigh, 0x80, 0x7F}, 34, 0xFF));

  EXPECT_EQ(out[0], -128);
  EXPECT_EQ(out[1], 127);
  EXPECT_EQ(out[2], -1);
}

TEST(DequantizeTest, Q4_KSubtractsTheMinimumOfEachGroup) {
  // d = dmin = 1; scales 1..4 and mins 5..8 for the first four groups, zero for the last four.
  const auto out = Dequantize(
      DType::kQ4_K,
      Block({kOneLow, kOneHigh, kOneLow, kOneHigh, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0}, 144, 0x21));

  EXPECT_EQ(out[0], 1 * 1 - 5);
  EXPECT_EQ(out[32], 2 * 2 - 6);
  EXPECT_EQ(out[64], 3 * 1 - 7);
  EXPECT_EQ(out[96], 4 * 2 - 8);
  EXPECT_EQ(out[128], 0);
  EXPECT_EQ(out[255], 0);
}

TEST(DequantizeTest, Int4SubtractsAZeroOfUpTo16) {
  const auto out = Dequantize(DType::kInt4, Block({kOneLow, kOneHigh, 16}, 19, 0xF0));

  EXPECT_EQ(out[0], 0 - 16);
  EXPECT_EQ(out[15], 0 - 16);
  EXPECT_EQ(out[16], 15 - 16);
  EXPECT_EQ(out[31], 15 - 16);
}

TEST(DequantizeTest, MXFP4ReachesTheSmallestAndTheLargestScale) {
  // Codes 1 (half of the scale) and 7 (six times the scale).
  EXPECT_EQ(Dequantize(DType::kMXFP4, Block({0}, 17, 0x71))[0], 0x1p-128f);
  EXPECT_EQ(Dequantize(DType::kMXFP4, Block({1}, 17, 0x71))[16], 0x1.8p-124f);
  EXPECT_EQ(Dequantize(DType::kMXFP4, Block({252}, 17, 0x71))[16], 0x1.8p+127f);
}

TEST(DequantizeTest, HalfPrecisionConvertsEveryBitPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const int exponent = (half >> 10) & 0x1F;
    const int mantissa = half & 0x3FF;
    const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
    const float value = HalfToFloat(half);
    if (exponent == 0x1F && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value)))) << bits;
      continue;
    }
    const float expected = exponent == 0x1F ? std::numeric_limits<float>::infinity()
                           : exponent == 0
                               ? std::ldexp(static_cast<float>(mantissa), -24)
                               : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
    ASSERT_EQ(value, sign * expected) << bits;
    ASSERT_EQ(FloatToHalf(value), half) << bits;
  }
}

TEST(DequantizeTest, HalfPrecisionRoundsToNearestEven) {
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f), 0x3C00);      // halfway, down to even
  EXPECT_EQ(FloatToHalf(1.0f + 3 * 0x1p-11f), 0x3C02);  // halfway, up to even
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f + 0x1p-20f), 0x3C01);
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToHalf(0x1.8p-25f), 0x0001);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
}

TEST(DequantizeTest, Bfloat16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBFloat16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBFloat16(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(FloatToBFloat16(1.0f + 3 * 0x1p-8f), 0x3F82);
  EXPECT_EQ(BFloat16ToFloat(0xC040), -3.0f);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::nanf("")))));
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::infinity()), 0x7F80);
}

}  // namespace
}  // namespace baton::checkpoint
