#include "engine/ops/cpu/unpacked_group.h"

#include <cstring>
#include <utility>

#include "checkpoint/codebooks.h"

namespace baton::engine::cpu {
namespace {

using checkpoint::DType;

std::uint16_t ReadU16(const std::byte* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
float ReadHalf(const std::byte* at) { return checkpoint::HalfToFloat(ReadU16(at)); }
std::uint8_t ReadU8(const std::byte* at) { return std::to_integer<std::uint8_t>(*at); }

void SetScale(UnpackedGroup& group, float scale, float min) {
  group.scale = {scale, scale};
  group.min = {min, min};
}

// Nibbles of 16 bytes: the low ones are elements 0..15, the high ones 16..31.
void ReadNibbles(const std::byte* at, int offset, UnpackedGroup& group) {
  for (int i = 0; i < 16; ++i) {
    group.quants[i] = static_cast<std::int8_t>((ReadU8(at + i) & 15) - offset);
    group.quants[i + 16] = static_cast<std::int8_t>((ReadU8(at + i) >> 4) - offset);
  }
}

// Q4_0: f16 scale, 16 bytes of nibbles. Left plain (0..15): the tile's offset is 8.
void ReadQ4_0(const std::byte* block, UnpackedGroup& group) {
  SetScale(group, ReadHalf(block), 0.0f);
  ReadNibbles(block + 2, 0, group);
}

// Q4_1: f16 scale, f16 min, 16 bytes of nibbles.
void ReadQ4_1(const std::byte* block, UnpackedGroup& group) {
  SetScale(group, ReadHalf(block), ReadHalf(block + 2));
  ReadNibbles(block + 4, 0, group);
}

// Q8_0: f16 scale, 32 signed bytes.
void ReadQ8_0(const std::byte* block, UnpackedGroup& group) {
  SetScale(group, ReadHalf(block), 0.0f);
  std::memcpy(group.quants.data(), block + 2, kGroup);
}

// The fifth bits of 32 elements, one 32-bit word, added to the nibbles after it.
void ReadFiveBits(const std::byte* at, int offset, UnpackedGroup& group) {
  std::uint32_t high;
  std::memcpy(&high, at, sizeof high);
  ReadNibbles(at + 4, offset, group);
  for (int i = 0; i < kGroup; ++i) {
    group.quants[i] = static_cast<std::int8_t>(group.quants[i] + (((high >> i) & 1) << 4));
  }
}

// Q5_0: f16 scale, high bits, nibbles. Q5_1: a min after the scale.
void ReadQ5_0(const std::byte* block, UnpackedGroup& group) {
  SetScale(group, ReadHalf(block), 0.0f);
  ReadFiveBits(block + 2, 16, group);
}
void ReadQ5_1(const std::byte* block, UnpackedGroup& group) {
  SetScale(group, ReadHalf(block), ReadHalf(block + 2));
  ReadFiveBits(block + 4, 0, group);
}

// The 6-bit scale and min of sub-block `index` (0..7) in the 12 packed bytes of Q4_K and Q5_K.
std::pair<int, int> ReadScaleMin(const std::byte* at, int index) {
  const auto byte = [at](int i) { return static_cast<int>(ReadU8(at + i)); };
  if (index < 4) return {byte(index) & 63, byte(index + 4) & 63};
  return {(byte(index + 4) & 15) | ((byte(index - 4) >> 6) << 4),
          (byte(index + 4) >> 4) | ((byte(index) >> 6) << 4)};
}

// Q4_K, 256 elements: f16 d, f16 dmin, 12 bytes of scales, 128 of nibbles (32 bytes hold sub-blocks
// 2i, low, and 2i + 1, high). Q5_K puts 32 bytes of fifth bits before the nibbles: bit j of byte l
// belongs to element l of sub-block j.
void ReadQ4K(const std::byte* block, int sub, UnpackedGroup& group) {
  const auto [scale, min] = ReadScaleMin(block + 4, sub);
  SetScale(group, ReadHalf(block) * scale, -(ReadHalf(block + 2) * min));
  const std::byte* nibbles = block + 16 + 32 * (sub / 2);
  for (int i = 0; i < kGroup; ++i) {
    group.quants[i] = static_cast<std::int8_t>((ReadU8(nibbles + i) >> (sub % 2 * 4)) & 15);
  }
}
void ReadQ5K(const std::byte* block, int sub, UnpackedGroup& group) {
  const auto [scale, min] = ReadScaleMin(block + 4, sub);
  SetScale(group, ReadHalf(block) * scale, -(ReadHalf(block + 2) * min));
  const std::byte* high = block + 16;
  const std::byte* nibbles = block + 48 + 32 * (sub / 2);
  for (int i = 0; i < kGroup; ++i) {
    const int low = (ReadU8(nibbles + i) >> (sub % 2 * 4)) & 15;
    group.quants[i] = static_cast<std::int8_t>(low | (((ReadU8(high + i) >> sub) & 1) << 4));
  }
}

// Q6_K, 256 elements: 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, f16 d. Each
// half of 128 has four runs of 32: runs 0 and 1 in the low nibbles of its bytes 0..31 and 32..63,
// runs 2 and 3 in the high ones; bit pair `run` of byte l completes element l.
void ReadQ6K(const std::byte* block, int sub, UnpackedGroup& group) {
  const int half = sub / 4;
  const int run = sub % 4;
  const std::byte* low = block + 64 * half + 32 * (run % 2);
  const std::byte* high = block + 128 + 32 * half;
  for (int i = 0; i < kGroup; ++i) {
    const int nibble = (ReadU8(low + i) >> (run / 2 * 4)) & 15;
    const int pair = (ReadU8(high + i) >> (2 * run)) & 3;
    group.quants[i] = static_cast<std::int8_t>((nibble | (pair << 4)) - 32);
  }
  const float d = ReadHalf(block + 208);
  const std::byte* scales = block + 192 + 8 * half + 2 * run;
  group.scale = {d * static_cast<std::int8_t>(ReadU8(scales)),
                 d * static_cast<std::int8_t>(ReadU8(scales + 1))};
  group.min = {};
}

// Bit pairs of Q2_K and Q3_K, 64 bytes: each half of 128 elements uses 32, and pair p of byte i is
// element 32 p + i of the half.
void ReadPairs(const std::byte* at, int sub, UnpackedGroup& group) {
  const std::byte* pairs = at + 32 * (sub / 4);
  for (int i = 0; i < kGroup; ++i) {
    group.quants[i] = static_cast<std::int8_t>((ReadU8(pairs + i) >> (2 * (sub % 4))) & 3);
  }
}

// Q2_K, 256 elements: 16 bytes of scale (low half) and min for 16 elements each, 64 bytes of bit
// pairs, f16 d, f16 dmin.
void ReadQ2K(const std::byte* block, int sub, UnpackedGroup& group) {
  ReadPairs(block + 16, sub, group);
  const float d = ReadHalf(block + 80);
  const float dmin = ReadHalf(block + 82);
  for (int half = 0; half < 2; ++half) {
    const int both = ReadU8(block + 2 * sub + half);
    group.scale[half] = d * (both & 15);
    group.min[half] = -(dmin * (both >> 4));
  }
}

// Q3_K, 256 elements: 32 bytes of third bits (bit `sub` of byte i is that of element i of group
// `sub`), 64 bytes of bit pairs, 12 of scales, f16 d. Scale j of 16: four bits of byte j % 8, the
// low ones first, and two of byte 8 + j % 4; less 32. Left plain (0..7): the tile's offset is 4.
void ReadQ3K(const std::byte* block, int sub, UnpackedGroup& group) {
  ReadPairs(block + 32, sub, group);
  for (int i = 0; i < kGroup; ++i) {
    const int third = (ReadU8(block + i) >> sub) & 1;
    group.quants[i] = static_cast<std::int8_t>(group.quants[i] | third << 2);
  }
  const std::byte* scales = block + 96;
  const float d = ReadHalf(block + 108);
  for (int half = 0; half < 2; ++half) {
    const int j = 2 * sub + half;
    const int low = (ReadU8(scales + j % 8) >> (j / 8 * 4)) & 15;
    const int high = (ReadU8(scales + 8 + j % 4) >> (j / 4 * 2)) & 3;
    group.scale[half] = d * ((low | high << 4) - 32);
  }
  group.min = {};
}

// IQ4_NL: f16 scale, 16 bytes of codes. Codes stay codes: kernels look them up.
void ReadIQ4NL(const std::byte* block, UnpackedGroup& group) {
  SetScale(group, ReadHalf(block), 0.0f);
  ReadNibbles(block + 2, 0, group);
}

// IQ4_XS, 256 elements: f16 d, the high bit pairs of eight 6-bit scales in 16 bits, their low
// nibbles in 4 bytes, 128 bytes of codes, 16 a group.
void ReadIQ4XS(const std::byte* block, int sub, UnpackedGroup& group) {
  const int low = (ReadU8(block + 4 + sub / 2) >> (sub % 2 * 4)) & 15;
  const int high = (ReadU16(block + 2) >> (2 * sub)) & 3;
  SetScale(group, ReadHalf(block) * ((low | high << 4) - 32), 0.0f);
  ReadNibbles(block + 8 + 16 * sub, 0, group);
}

// MXFP4: an exponent, 16 bytes of codes of doubled values.
void ReadMXFP4(const std::byte* block, UnpackedGroup& group) {
  SetScale(group, checkpoint::HalfOfE8M0(ReadU8(block)), 0.0f);
  ReadNibbles(block + 1, 0, group);
}

// INT4: f16 scale, a zero, 16 bytes of nibbles.
void ReadInt4(const std::byte* block, UnpackedGroup& group) {
  SetScale(group, ReadHalf(block), 0.0f);
  group.zero = ReadU8(block + 2);
  ReadNibbles(block + 3, 0, group);
}

}  // namespace

void ReadGroup(DType dtype, const std::byte* row, int index, UnpackedGroup& group) {
  const int bytes = checkpoint::BlockBytes(dtype);
  const std::byte* block32 = row + static_cast<std::size_t>(index) * bytes;
  const std::byte* block256 = row + static_cast<std::size_t>(index / 8) * bytes;
  switch (dtype) {
    case DType::kQ4_0:
      return ReadQ4_0(block32, group);
    case DType::kQ4_1:
      return ReadQ4_1(block32, group);
    case DType::kQ5_0:
      return ReadQ5_0(block32, group);
    case DType::kQ5_1:
      return ReadQ5_1(block32, group);
    case DType::kQ8_0:
      return ReadQ8_0(block32, group);
    case DType::kQ4_K:
      return ReadQ4K(block256, index % 8, group);
    case DType::kQ5_K:
      return ReadQ5K(block256, index % 8, group);
    case DType::kQ6_K:
      return ReadQ6K(block256, index % 8, group);
    case DType::kQ2_K:
      return ReadQ2K(block256, index % 8, group);
    case DType::kQ3_K:
      return ReadQ3K(block256, index % 8, group);
    case DType::kIQ4_NL:
      return ReadIQ4NL(block32, group);
    case DType::kIQ4_XS:
      return ReadIQ4XS(block256, index % 8, group);
    case DType::kMXFP4:
      return ReadMXFP4(block32, group);
    case DType::kInt4:
      return ReadInt4(block32, group);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
}

}  // namespace baton::engine::cpu
