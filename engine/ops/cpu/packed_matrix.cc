#include "engine/ops/cpu/packed_matrix.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::engine::cpu {
namespace {

using checkpoint::DType;
using checkpoint::Tensor;

// One group of 32 weights of one row, whatever its file format: weight i is
// scale[i / 16] * quants[i] + min[i / 16], where quants are signed (8-bit tiles) or plain (4-bit).
struct UnpackedGroup {
  std::array<std::int8_t, kGroup> quants;
  std::array<float, 2> scale;
  float min = 0.0f;
};

std::uint16_t ReadU16(const std::byte* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
float ReadHalf(const std::byte* at) { return checkpoint::HalfToFloat(ReadU16(at)); }
std::uint8_t ReadU8(const std::byte* at) { return std::to_integer<std::uint8_t>(*at); }

void SetScale(UnpackedGroup& group, float scale, float min) {
  group.scale = {scale, scale};
  group.min = min;
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
  group.min = 0.0f;
}

// Group `index` of a row of quantized `dtype`.
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
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
}

// Places the quants of row `lane` of a tile into the 256 or 512 bytes of one group.
void PlaceQuants(const UnpackedGroup& group, int bits, int lane, std::byte* out) {
  for (int i = 0; i < kGroup; ++i) {
    const int step = i / 4;
    if (bits == 8) {
      out[step * 64 + lane * 4 + i % 4] = static_cast<std::byte>(group.quants[i] + 128);
    } else {
      std::byte& target = out[step % 4 * 64 + lane * 4 + i % 4];
      const auto nibble = static_cast<std::byte>(group.quants[i]);
      target = step < 4 ? (target & std::byte{0xF0}) | nibble
                        : (target & std::byte{0x0F}) | (nibble << 4);
    }
  }
}

void PlaceScale(float value, bool wide, std::size_t index, std::byte* scales) {
  if (wide) {
    std::memcpy(scales + index * 4, &value, 4);
  } else {
    const std::uint16_t half = checkpoint::FloatToHalf(value);  // exact: it was one in the file
    std::memcpy(scales + index * 2, &half, 2);
  }
}

void PackIntegerTile(const Tensor& tensor, TileFormat format, int tile, std::byte* out) {
  const TileFormatTraits traits = TraitsOf(format);
  const int num_groups = static_cast<int>(tensor.columns()) / kGroup;
  const int num_rows = std::min<std::int64_t>(kTileRows, tensor.rows() - tile * kTileRows);
  UnpackedGroup group;
  for (int lane = 0; lane < num_rows; ++lane) {
    const std::byte* row =
        tensor.data.data() + (std::int64_t{tile} * kTileRows + lane) * tensor.row_bytes();
    for (int g = 0; g < num_groups; ++g) {
      ReadGroup(tensor.dtype, row, g, group);
      std::byte* at = out + static_cast<std::size_t>(g) * traits.group_bytes();
      PlaceScale(group.scale[0], traits.wide_scales, lane, at);
      if (traits.scale_vectors() == 2) {
        PlaceScale(traits.has_min ? group.min : group.scale[1], traits.wide_scales,
                   kTileRows + lane, at);
      }
      PlaceQuants(group, traits.bits, lane, at + traits.scale_bytes());
    }
  }
}

void PackFloatTile(const Tensor& tensor, int bytes, int tile, std::byte* out) {
  const std::int64_t columns = tensor.columns();
  const int num_rows = std::min<std::int64_t>(kTileRows, tensor.rows() - tile * kTileRows);
  for (int lane = 0; lane < num_rows; ++lane) {
    const std::byte* row =
        tensor.data.data() + (std::int64_t{tile} * kTileRows + lane) * tensor.row_bytes();
    for (std::int64_t k = 0; k < columns; ++k) {
      std::memcpy(out + (k * kTileRows + lane) * bytes, row + k * bytes, bytes);
    }
  }
}

}  // namespace

TileFormat TileFormatFor(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return TileFormat::kF32;
    case DType::kF16:
      return TileFormat::kF16;
    case DType::kBF16:
      return TileFormat::kBF16;
    case DType::kQ4_0:
      return TileFormat::kInt4Offset8;
    case DType::kQ4_1:
      return TileFormat::kInt4Min;
    case DType::kQ4_K:
      return TileFormat::kInt4MinF32;
    case DType::kQ8_0:
    case DType::kQ5_0:
      return TileFormat::kInt8;
    case DType::kQ5_1:
      return TileFormat::kInt8Min;
    case DType::kQ5_K:
      return TileFormat::kInt8MinF32;
    case DType::kQ6_K:
      return TileFormat::kInt8HalfGroupF32;
  }
  return TileFormat::kF32;
}

PackedMatrix::PackedMatrix(TileFormat format, int rows, int columns)
    : format_(format), rows_(rows), columns_(columns) {
  const TileFormatTraits traits = TraitsOf(format);
  const std::size_t bytes = traits.is_integer
                                ? static_cast<std::size_t>(columns / kGroup) * traits.group_bytes()
                                : static_cast<std::size_t>(columns) * kTileRows * traits.bits / 8;
  tile_bytes_ = (bytes + 63) / 64 * 64;
}

absl::StatusOr<PackedMatrix> PackedMatrix::Pack(const Tensor& tensor, ThreadPool& pool,
                                                WeightMemory& memory) {
  const TileFormat format = TileFormatFor(tensor.dtype);
  const std::int64_t rows = tensor.rows();
  const std::int64_t columns = tensor.columns();
  constexpr std::int64_t kLimit = std::numeric_limits<int>::max() / kTileRows;
  if (rows <= 0 || columns <= 0 || rows > kLimit || columns > kLimit ||
      columns % checkpoint::BlockElements(tensor.dtype) != 0 ||
      static_cast<std::int64_t>(tensor.data.size()) != rows * tensor.row_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("weight matrix does not fit its data: %s is %d x %d in %d bytes",
                        tensor.name, rows, columns, tensor.data.size()));
  }
  PackedMatrix packed(format, static_cast<int>(rows), static_cast<int>(columns));
  BATON_ASSIGN_OR_RETURN(packed.data_, memory.Take(packed.bytes()));
  // Several tiles an index: a head of 128k rows must stay below the pool's limit and its overhead.
  constexpr int kTilesPerIndex = 8;
  const int num_tiles = packed.num_tiles();
  pool.ParallelFor((num_tiles + kTilesPerIndex - 1) / kTilesPerIndex, [&](int index, int) {
    const int end = std::min(num_tiles, (index + 1) * kTilesPerIndex);
    for (int tile = index * kTilesPerIndex; tile < end; ++tile) {
      std::byte* out = packed.data_.get() + packed.tile_bytes_ * tile;
      if (TraitsOf(format).is_integer) {
        PackIntegerTile(tensor, format, tile, out);
      } else {
        PackFloatTile(tensor, TraitsOf(format).bits / 8, tile, out);
      }
    }
  });
  return packed;
}

}  // namespace baton::engine::cpu
