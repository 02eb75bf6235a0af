#include "checkpoint/tensor.h"

#include <bit>

#include "common/check.h"

namespace baton::checkpoint {
namespace {

struct DTypeFacts {
  std::string_view name;
  int block_elements;
  int block_bytes;
};

// In the order of DType. Block sizes are those of ggml's block_* structs.
constexpr DTypeFacts kFacts[] = {
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},       {"Q8_0", 32, 34},
    {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},     {"Q5_1", 32, 24},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},   {"Q2_K", 256, 84},
    {"Q3_K", 256, 110}, {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136}, {"MXFP4", 32, 17},
    {"INT4", 32, 19},
};

const DTypeFacts& Facts(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  BATON_CHECK(index < std::size(kFacts), "no such tensor type");
  return kFacts[index];
}

}  // namespace

std::string_view DTypeName(DType dtype) { return Facts(dtype).name; }
int BlockElements(DType dtype) { return Facts(dtype).block_elements; }
int BlockBytes(DType dtype) { return Facts(dtype).block_bytes; }

std::int64_t Tensor::rows() const {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::int64_t Tensor::columns() const { return shape.empty() ? 1 : shape.back(); }

std::int64_t Tensor::row_bytes() const {
  return columns() / BlockElements(dtype) * BlockBytes(dtype);
}

float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1Fu;
  std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: mantissa * 2^-24 is exact in float.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

std::uint16_t FloatToHalf(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN stays NaN: keep the top payload bits, set the quiet bit
    return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x47800000u) return sign | 0x7C00u;  // 2^16 and more, infinity
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal or zero
    // Adding 0.5 puts units of 2^-24 into the lowest mantissa bits, rounded to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  // Rounding may carry into the exponent, and from 65520 on into infinity, as it should.
  const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float BFloat16ToFloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t FloatToBFloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace baton::checkpoint
