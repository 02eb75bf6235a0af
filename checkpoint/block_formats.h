#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "checkpoint/tensor.h"

// One plain loop per block format, in ggml's order of operations, so that results equal ggml's bit
// for bit. Layouts are those of ggml-common.h (block_q4_0 ... block_mxfp4). Files that define these
// are compiled without fused multiply-add. Fast paths live in engine/ops/cpu, which keeps weights
// quantized.
//   block: BlockBytes(dtype) bytes; out: BlockElements(dtype) values
namespace baton::checkpoint {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

void DequantizeQ8_0(const std::byte* block, float* out);
void DequantizeQ4_0(const std::byte* block, float* out);
void DequantizeQ4_1(const std::byte* block, float* out);
void DequantizeQ5_0(const std::byte* block, float* out);
void DequantizeQ5_1(const std::byte* block, float* out);
void DequantizeInt4(const std::byte* block, float* out);

void DequantizeQ2_K(const std::byte* block, float* out);
void DequantizeQ3_K(const std::byte* block, float* out);
void DequantizeQ4_K(const std::byte* block, float* out);
void DequantizeQ5_K(const std::byte* block, float* out);
void DequantizeQ6_K(const std::byte* block, float* out);

void DequantizeIQ4_NL(const std::byte* block, float* out);
void DequantizeIQ4_XS(const std::byte* block, float* out);
void DequantizeMXFP4(const std::byte* block, float* out);

// Reading the parts of a block.
inline std::uint16_t Load16(const std::byte* p) {
  std::uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
inline std::uint32_t Load32(const std::byte* p) {
  std::uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
inline float LoadHalf(const std::byte* p) { return HalfToFloat(Load16(p)); }
inline int Low(std::byte b) { return std::to_integer<int>(b) & 0xF; }
inline int High(std::byte b) { return std::to_integer<int>(b) >> 4; }
inline int Signed(std::byte b) { return std::to_integer<std::int8_t>(b); }

}  // namespace baton::checkpoint
