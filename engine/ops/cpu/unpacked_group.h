#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "checkpoint/tensor.h"
#include "engine/ops/cpu/packed_matrix.h"

namespace baton::engine::cpu {

// One group of 32 weights of one row, whatever its file format: weight i is
// scale[i / 16] * quants[i] + min[i / 16], where quants are signed (8-bit tiles), plain (smaller
// ones, less the tile's offset or `zero`), or codes of the tile's table.
struct UnpackedGroup {
  std::array<std::int8_t, kGroup> quants;
  std::array<float, 2> scale;
  std::array<float, 2> min;
  std::uint8_t zero = 0;
};

// Reads group `index` of a row of quantized `dtype`. `row` holds at least BlockBytes for it.
void ReadGroup(checkpoint::DType dtype, const std::byte* row, int index, UnpackedGroup& group);

}  // namespace baton::engine::cpu
