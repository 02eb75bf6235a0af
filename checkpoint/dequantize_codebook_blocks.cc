// Types whose 4-bit codes stand for the entries of a table.
#include "checkpoint/block_formats.h"
#include "checkpoint/codebooks.h"

namespace baton::checkpoint {
namespace {

// 16 bytes: element i in the low half of byte i, element i + 16 in the high half.
void LookUp(const std::byte* codes, const std::int8_t (&table)[16], float scale, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(table[Low(codes[i])]);
    out[i + 16] = scale * static_cast<float>(table[High(codes[i])]);
  }
}

}  // namespace

// d; codes.
void DequantizeIQ4_NL(const std::byte* block, float* out) {
  LookUp(block + 2, kIq4Values, LoadHalf(block), out);
}

// d; the two high bits of eight 6-bit scales in 16 bits; their low halves in 4 bytes; 8 times 16
// bytes of codes.
void DequantizeIQ4_XS(const std::byte* block, float* out) {
  const float d = LoadHalf(block);
  const int high = Load16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const std::byte pair = block[4 + group / 2];
    const int low = group % 2 == 0 ? Low(pair) : High(pair);
    const int scale = (low | ((high >> (2 * group)) & 3) << 4) - 32;
    LookUp(block + 8 + 16 * group, kIq4Values, d * static_cast<float>(scale), out + 32 * group);
  }
}

// The scale's exponent, one byte; codes.
void DequantizeMXFP4(const std::byte* block, float* out) {
  LookUp(block + 1, kFp4Values, HalfOfE8M0(std::to_integer<std::uint8_t>(block[0])), out);
}

}  // namespace baton::checkpoint
