#include "engine/ops/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "engine/ops/cpu/unpacked_group.h"

namespace baton::engine::cpu {
namespace {

using checkpoint::DType;
using checkpoint::Tensor;

// Places the quants of row `lane` of a tile into the bytes of one group.
void PlaceQuants(const UnpackedGroup& group, int bits, int lane, std::byte* out) {
  const int steps = bits;  // vectors of words: 8 steps of columns, each `bits` of a byte
  for (int i = 0; i < kGroup; ++i) {
    const int step = i / 4;
    std::byte& target = out[step % steps * 64 + lane * 4 + i % 4];
    if (bits == 8) {
      target = static_cast<std::byte>(group.quants[i] + 128);
    } else {
      const int shift = step / steps * bits;
      const auto mask = static_cast<std::byte>(((1 << bits) - 1) << shift);
      target = (target & ~mask) | static_cast<std::byte>(group.quants[i] << shift);
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
      const int scales = traits.scales_per_group();
      for (int v = 0; v < traits.scale_vectors(); ++v) {
        const float value = v < scales ? group.scale[v] : group.min[v - scales];
        PlaceScale(value, traits.wide_scales, v * kTileRows + lane, at);
      }
      if (traits.has_zero) at[traits.scale_bytes() - kTileRows + lane] = std::byte{group.zero};
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
    case DType::kQ2_K:
      return TileFormat::kInt2HalfGroupMinF32;
    case DType::kQ3_K:
      return TileFormat::kInt4HalfGroupF32;
    case DType::kIQ4_NL:
      return TileFormat::kIq4;
    case DType::kIQ4_XS:
      return TileFormat::kIq4F32;
    case DType::kMXFP4:
      return TileFormat::kFp4F32;
    case DType::kInt4:
      return TileFormat::kInt4Zero;
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
      static_cast<std::int64_t>(tensor.data.size()) != rows * tensor.row_bytes() ||
      (!tensor.column_order.empty() &&
       static_cast<std::int64_t>(tensor.column_order.size()) != columns)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("weight matrix does not fit its data: %s is %d x %d in %d bytes",
                        tensor.name, rows, columns, tensor.data.size()));
  }
  PackedMatrix packed(format, static_cast<int>(rows), static_cast<int>(columns));
  packed.column_order_ = tensor.column_order;
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
