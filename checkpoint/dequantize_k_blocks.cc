// K types: blocks of 256 elements whose 8 or 16 groups have small integer scales.
#include "checkpoint/block_formats.h"

namespace baton::checkpoint {
namespace {

struct ScaleAndMin {
  int scale;
  int min;
};

// The eight 6-bit scales and mins of Q4_K and Q5_K, packed into 12 bytes: the first four use the
// low 6 bits of bytes 0-3 and 4-7; the last four take 4 bits of bytes 8-11 and, as their top two
// bits, the top two of the first eight bytes.
ScaleAndMin UnpackScale(const std::byte* packed, int i) {
  const auto at = [&](int index) { return std::to_integer<int>(packed[index]); };
  if (i < 4) return {at(i) & 63, at(i + 4) & 63};
  return {(at(i + 4) & 0xF) | (at(i - 4) >> 6) << 4, (at(i + 4) >> 4) | (at(i) >> 6) << 4};
}

// Scale `i` of the 16 signed 6-bit scales of Q3_K, packed into 12 bytes: four low bits in the first
// eight bytes, scales 8 to 15 in their high halves; two high bits in the last four.
int UnpackQ3Scale(const std::byte* packed, int i) {
  const int low = i < 8 ? Low(packed[i]) : High(packed[i - 8]);
  const int high = (std::to_integer<int>(packed[8 + i % 4]) >> (2 * (i / 4))) & 3;
  return (low | high << 4) - 32;
}

}  // namespace

// 16 bytes, each a scale (low half) and a min of 16 elements; 64 bytes of bit pairs; d, dmin. Each
// half of 128 elements uses 32 bytes: pair p of byte i is element 32 p + i.
void DequantizeQ2_K(const std::byte* block, float* out) {
  const std::byte* quants = block + 16;
  const float d = LoadHalf(block + 80);
  const float dmin = LoadHalf(block + 82);
  for (int group = 0; group < 16; ++group) {
    const float group_d = d * static_cast<float>(Low(block[group]));
    const float group_min = dmin * static_cast<float>(High(block[group]));
    const std::byte* q = quants + group / 8 * 32 + group % 2 * 16;
    const int shift = group % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      const int pair = (std::to_integer<int>(q[i]) >> shift) & 3;
      *out++ = group_d * static_cast<float>(pair) - group_min;
    }
  }
}

// 32 bytes of third bits, 64 of bit pairs, 12 of scales, d. Pairs lie as in Q2_K; bit r of third
// byte i belongs to element 32 r + i, and takes 4 off where it is not set.
void DequantizeQ3_K(const std::byte* block, float* out) {
  const std::byte* quants = block + 32;
  const float d = LoadHalf(block + 108);
  for (int group = 0; group < 16; ++group) {
    const float group_d = d * static_cast<float>(UnpackQ3Scale(block + 96, group));
    const std::byte* q = quants + group / 8 * 32 + group % 2 * 16;
    const std::byte* third = block + group % 2 * 16;
    const int run = group / 2;
    for (int i = 0; i < 16; ++i) {
      const int pair = (std::to_integer<int>(q[i]) >> (run % 4 * 2)) & 3;
      const int bit = (std::to_integer<int>(third[i]) >> run) & 1;
      *out++ = group_d * static_cast<float>(pair - (bit != 0 ? 0 : 4));
    }
  }
}

// d, dmin; 12 bytes of scales; 128 bytes: each 32 hold 64 elements, low halves first.
void DequantizeQ4_K(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  const std::byte* quants = block + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = UnpackScale(block + 4, group);
    const float group_d = d * static_cast<float>(scale);
    const float group_min = dmin * static_cast<float>(min);
    const std::byte* q = quants + group / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int value = group % 2 == 0 ? Low(q[i]) : High(q[i]);
      *out++ = group_d * static_cast<float>(value) - group_min;
    }
  }
}

// As Q4_K with 32 bytes of fifth bits before the nibbles: bit g of byte i is that of element i of
// group g.
void DequantizeQ5_K(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  const std::byte* fifth = block + 16;
  const std::byte* quants = block + 48;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = UnpackScale(block + 4, group);
    const float group_d = d * static_cast<float>(scale);
    const float group_min = dmin * static_cast<float>(min);
    const std::byte* q = quants + group / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int nibble = group % 2 == 0 ? Low(q[i]) : High(q[i]);
      const int bit = (std::to_integer<int>(fifth[i]) >> group) & 1;
      *out++ = group_d * static_cast<float>(nibble | bit << 4) - group_min;
    }
  }
}

// 128 bytes of low halves, 64 of upper bit pairs, 16 signed scales (one for 16 elements), d. Each
// half of 128 elements uses 64 bytes of nibbles and 32 of bit pairs.
void DequantizeQ6_K(const std::byte* block, float* out) {
  const std::byte* scales = block + 192;
  const float d = LoadHalf(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + half * 64;
    const std::byte* high = block + 128 + half * 32;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const std::byte source = low[i + quarter % 2 * 32];
        const int nibble = quarter < 2 ? Low(source) : High(source);
        const int pair = (std::to_integer<int>(high[i]) >> (2 * quarter)) & 3;
        const float scale = d * static_cast<float>(Signed(scales[half * 8 + quarter * 2 + i / 16]));
        out[half * 128 + quarter * 32 + i] = scale * static_cast<float>((nibble | pair << 4) - 32);
      }
    }
  }
}

}  // namespace baton::checkpoint
