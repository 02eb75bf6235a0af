#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::checkpoint {

// Element types as stored. The quantized ones are GGUF's block formats (ggml's own layouts), but
// for the last, which is in no file: AWQ and GPTQ matrices are brought into it when opened.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  // 32 columns of one row: f16 scale, a zero of 0..16 in a byte, 16 bytes of nibbles (element i in
  // the low half of byte i, i + 16 in the high half). Value: scale * (nibble - zero), exact.
  kInt4,
};
inline constexpr int kNumFileDTypes = static_cast<int>(DType::kInt4);  // those before it

std::string_view DTypeName(DType dtype);  // "F16", "Q4_1", ...
int BlockElements(DType dtype);           // elements per block: 1, 32 or 256
int BlockBytes(DType dtype);              // bytes per block

// One tensor of a checkpoint: a view into mapped memory, row-major. Rows of quantized types are
// whole blocks: columns() is a multiple of BlockElements(dtype).
struct Tensor {
  std::string name;  // canonical
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // outermost first: {rows, columns} or {columns}
  std::span<const std::byte> data;  // exactly rows() * row_bytes()
  // Column c of the data multiplies element column_order[c] of an input: GPTQ's act-order sorted by
  // group. A permutation of [0, columns()), or empty: the identity.
  std::span<const std::int32_t> column_order;

  std::int64_t rows() const;  // 1 for vectors
  std::int64_t columns() const;
  std::int64_t row_bytes() const;
};

// Converts `count` elements of one row starting at element 0 to float, exactly as the format
// defines. `count` is a multiple of BlockElements(dtype); `row` holds at least the matching bytes.
void DequantizeRow(DType dtype, const std::byte* row, std::int64_t count, float* out);

float HalfToFloat(std::uint16_t half);   // IEEE binary16
std::uint16_t FloatToHalf(float value);  // round to nearest even
float BFloat16ToFloat(std::uint16_t bits);
std::uint16_t FloatToBFloat16(float value);  // round to nearest even

}  // namespace baton::checkpoint
