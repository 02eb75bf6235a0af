// Blocks of 32 elements with one scale.
#include "checkpoint/block_formats.h"

namespace baton::checkpoint {
namespace {

constexpr int kBlock = 32;

}  // namespace

// d; 32 signed bytes.
void DequantizeQ8_0(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < kBlock; ++i) out[i] = static_cast<float>(Signed(block[2 + i])) * d;
}

// d; 16 bytes: element i in the low half of byte i, element i + 16 in the high half.
void DequantizeQ4_0(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = static_cast<float>(Low(block[2 + i]) - 8) * d;
    out[i + 16] = static_cast<float>(High(block[2 + i]) - 8) * d;
  }
}

// d, m; nibbles as in Q4_0.
void DequantizeQ4_1(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = static_cast<float>(Low(block[4 + i])) * d + m;
    out[i + 16] = static_cast<float>(High(block[4 + i])) * d + m;
  }
}

// d; 32 fifth bits, element i at bit i; nibbles as in Q4_0.
void DequantizeQ5_0(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const std::uint32_t fifth = Load32(block + 2);
  for (int i = 0; i < kBlock / 2; ++i) {
    const int first = Low(block[6 + i]) | static_cast<int>((fifth >> i) & 1) << 4;
    const int second = High(block[6 + i]) | static_cast<int>((fifth >> (i + 16)) & 1) << 4;
    out[i] = static_cast<float>(first - 16) * d;
    out[i + 16] = static_cast<float>(second - 16) * d;
  }
}

// d, m; fifth bits; nibbles.
void DequantizeQ5_1(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  const std::uint32_t fifth = Load32(block + 4);
  for (int i = 0; i < kBlock / 2; ++i) {
    const int first = Low(block[8 + i]) | static_cast<int>((fifth >> i) & 1) << 4;
    const int second = High(block[8 + i]) | static_cast<int>((fifth >> (i + 16)) & 1) << 4;
    out[i] = static_cast<float>(first) * d + m;
    out[i + 16] = static_cast<float>(second) * d + m;
  }
}

// d, zero; nibbles as in Q4_0. The difference is a small integer, so the product is the only
// rounding, and there is none: 11 bits times 5 fit a float.
void DequantizeInt4(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const int zero = std::to_integer<int>(block[2]);
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = static_cast<float>(Low(block[3 + i]) - zero) * d;
    out[i + 16] = static_cast<float>(High(block[3 + i]) - zero) * d;
  }
}

}  // namespace baton::checkpoint
