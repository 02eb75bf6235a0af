// DequantizeRow: the loop over a row's blocks; block_formats.h has the formats.
#include <cstring>

#include "checkpoint/block_formats.h"
#include "checkpoint/tensor.h"
#include "common/check.h"

namespace baton::checkpoint {
namespace {

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
      return ForEachBlock<DequantizeQ8_0>(dtype, row, count, out);
    case DType::kQ4_0:
      return ForEachBlock<DequantizeQ4_0>(dtype, row, count, out);
    case DType::kQ4_1:
      return ForEachBlock<DequantizeQ4_1>(dtype, row, count, out);
    case DType::kQ5_0:
      return ForEachBlock<DequantizeQ5_0>(dtype, row, count, out);
    case DType::kQ5_1:
      return ForEachBlock<DequantizeQ5_1>(dtype, row, count, out);
    case DType::kQ4_K:
      return ForEachBlock<DequantizeQ4_K>(dtype, row, count, out);
    case DType::kQ5_K:
      return ForEachBlock<DequantizeQ5_K>(dtype, row, count, out);
    case DType::kQ6_K:
      return ForEachBlock<DequantizeQ6_K>(dtype, row, count, out);
    case DType::kQ2_K:
      return ForEachBlock<DequantizeQ2_K>(dtype, row, count, out);
    case DType::kQ3_K:
      return ForEachBlock<DequantizeQ3_K>(dtype, row, count, out);
    case DType::kIQ4_NL:
      return ForEachBlock<DequantizeIQ4_NL>(dtype, row, count, out);
    case DType::kIQ4_XS:
      return ForEachBlock<DequantizeIQ4_XS>(dtype, row, count, out);
    case DType::kMXFP4:
      return ForEachBlock<DequantizeMXFP4>(dtype, row, count, out);
    case DType::kInt4:
      return ForEachBlock<DequantizeInt4>(dtype, row, count, out);
  }
}

}  // namespace baton::checkpoint
