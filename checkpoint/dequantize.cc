// DequantizeRow: one plain loop per type, in ggml's order of operations, so that results equal
// ggml's bit for bit. Layouts are those of ggml-common.h (block_q4_0 ... block_q6_K); this file is
// compiled without fused multiply-add. Fast paths live in engine/ops/cpu, which keeps weights
// quantized.
#include <bit>
#include <cstring>

#include "checkpoint/tensor.h"
#include "common/check.h"

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

namespace baton::checkpoint {
namespace {

constexpr int kSmallBlock = 32;  // elements of Q4_0 ... Q8_0

std::uint16_t Load16(const std::byte* p) {
  std::uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

std::uint32_t Load32(const std::byte* p) {
  std::uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

float LoadHalf(const std::byte* p) { return HalfToFloat(Load16(p)); }

int Low(std::byte b) { return std::to_integer<int>(b) & 0xF; }
int High(std::byte b) { return std::to_integer<int>(b) >> 4; }
int Signed(std::byte b) { return std::to_integer<std::int8_t>(b); }

// d; 32 signed bytes.
void Q8_0(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < kSmallBlock; ++i) out[i] = static_cast<float>(Signed(block[2 + i])) * d;
}

// d; 16 bytes: element i in the low half of byte i, element i + 16 in the high half.
void Q4_0(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    out[i] = static_cast<float>(Low(block[2 + i]) - 8) * d;
    out[i + 16] = static_cast<float>(High(block[2 + i]) - 8) * d;
  }
}

// d, m; nibbles as in Q4_0.
void Q4_1(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    out[i] = static_cast<float>(Low(block[4 + i])) * d + m;
    out[i + 16] = static_cast<float>(High(block[4 + i])) * d + m;
  }
}

// d; 32 fifth bits, element i at bit i; nibbles as in Q4_0.
void Q5_0(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const std::uint32_t fifth = Load32(block + 2);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    const int first = Low(block[6 + i]) | static_cast<int>((fifth >> i) & 1) << 4;
    const int second = High(block[6 + i]) | static_cast<int>((fifth >> (i + 16)) & 1) << 4;
    out[i] = static_cast<float>(first - 16) * d;
    out[i + 16] = static_cast<float>(second - 16) * d;
  }
}

// d, m; fifth bits; nibbles.
void Q5_1(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  const std::uint32_t fifth = Load32(block + 4);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    const int first = Low(block[8 + i]) | static_cast<int>((fifth >> i) & 1) << 4;
    const int second = High(block[8 + i]) | static_cast<int>((fifth >> (i + 16)) & 1) << 4;
    out[i] = static_cast<float>(first) * d + m;
    out[i + 16] = static_cast<float>(second) * d + m;
  }
}

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

// d, dmin; 12 bytes of scales; 128 bytes: each 32 hold 64 elements, low halves first.
void Q4_K(const std::byte* block, float* out) {
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
void Q5_K(const std::byte* block, float* out) {
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
void Q6_K(const std::byte* block, float* out) {
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

template <void (*kBlock)(const std::byte*, float*)>
void ForEachBlock(DType dtype, const std::byte* row, std::int64_t count, float* out) {
  const int elements = BlockElements(dtype);
  const int bytes = BlockBytes(dtype);
  for (std::int64_t i = 0; i < count; i += elements, row += bytes) kBlock(row, out + i);
}

}  // namespace

void DequantizeRow(DType dtype, const std::byte* row, std::int64_t count, float* out) {
  BATON_CHECK(count % BlockElements(dtype) == 0, "a row of whole blocks");
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(out, row, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case DType::kF16:
      for (std::int64_t i = 0; i < count; ++i) out[i] = LoadHalf(row + 2 * i);
      return;
    case DType::kBF16:
      for (std::int64_t i = 0; i < count; ++i) out[i] = BFloat16ToFloat(Load16(row + 2 * i));
      return;
    case DType::kQ8_0:
      return ForEachBlock<Q8_0>(dtype, row, count, out);
    case DType::kQ4_0:
      return ForEachBlock<Q4_0>(dtype, row, count, out);
    case DType::kQ4_1:
      return ForEachBlock<Q4_1>(dtype, row, count, out);
    case DType::kQ5_0:
      return ForEachBlock<Q5_0>(dtype, row, count, out);
    case DType::kQ5_1:
      return ForEachBlock<Q5_1>(dtype, row, count, out);
    case DType::kQ4_K:
      return ForEachBlock<Q4_K>(dtype, row, count, out);
    case DType::kQ5_K:
      return ForEachBlock<Q5_K>(dtype, row, count, out);
    case DType::kQ6_K:
      return ForEachBlock<Q6_K>(dtype, row, count, out);
  }
}

}  // namespace baton::checkpoint
