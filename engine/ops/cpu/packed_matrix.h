#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "checkpoint/tensor.h"
#include "engine/ops/cpu/weight_memory.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// Output rows of one weight tile: one 512-bit register of 32-bit lanes.
inline constexpr int kTileRows = 16;
// Columns that share one activation scale, and (but for Q6_K) one weight scale.
inline constexpr int kGroup = 32;

// How a tile keeps its weights. Integers are unsigned with an offset, so that one instruction
// multiplies them by signed activations: weight = scale * (stored - offset) + min.
enum class TileFormat : std::uint8_t {
  kInt4Offset8,       // Q4_0: offset 8, f16 scale per 32
  kInt4Min,           // Q4_1: offset 0, f16 scale and min per 32
  kInt4MinF32,        // Q4_K: offset 0, f32 scale and min per 32
  kInt8,              // Q8_0, Q5_0: offset 128, f16 scale per 32
  kInt8Min,           // Q5_1: offset 128, f16 scale and min per 32
  kInt8MinF32,        // Q5_K: offset 128, f32 scale and min per 32
  kInt8HalfGroupF32,  // Q6_K: offset 128, f32 scale per 16
  kF16,
  kBF16,
  kF32,
};

// What a kernel needs to know of a format at compile time.
struct TileFormatTraits {
  int bits = 0;  // per stored weight
  bool is_integer = false;
  bool has_min = false;
  bool wide_scales = false;  // f32 rather than f16
  int scale_columns = kGroup;
  // Vectors of 16 scales and mins per group, and the bytes of them and of a whole group.
  constexpr int scale_vectors() const { return (kGroup / scale_columns) * (has_min ? 2 : 1); }
  constexpr int scale_bytes() const { return scale_vectors() * kTileRows * (wide_scales ? 4 : 2); }
  constexpr int group_bytes() const { return scale_bytes() + bits * kGroup * kTileRows / 8; }
};
constexpr TileFormatTraits TraitsOf(TileFormat format) {
  switch (format) {
    case TileFormat::kInt4Offset8:
      return {4, true, false, false, 32};
    case TileFormat::kInt4Min:
      return {4, true, true, false, 32};
    case TileFormat::kInt4MinF32:
      return {4, true, true, true, 32};
    case TileFormat::kInt8:
      return {8, true, false, false, 32};
    case TileFormat::kInt8Min:
      return {8, true, true, false, 32};
    case TileFormat::kInt8MinF32:
      return {8, true, true, true, 32};
    case TileFormat::kInt8HalfGroupF32:
      return {8, true, false, true, 16};
    case TileFormat::kF16:
      return {16, false, false, false, 0};
    case TileFormat::kBF16:
      return {16, false, false, false, 0};
    case TileFormat::kF32:
      return {32, false, false, false, 0};
  }
  return {};
}

// A weight matrix [rows, columns] in the order the kernels read it: tiles of 16 output rows, each
// one contiguous piece of memory, rows beyond the last padded with zeros.
//   float formats    [columns][16]
//   integer formats  for each group of 32 columns its scales, then its weights, so that a tile is
//   read as one stream (a second one for scales halves the speed of reading from memory):
//     scales  [16], or [2][16]: scale and min, or the scales of both half groups
//     8 bits  [8 steps][16 rows][4]: step s holds columns 4s .. 4s+3 of its group
//     4 bits  [4 steps][16 rows][4]: low nibbles are step s, high nibbles step s + 4
// The bytes of a weight never grow by more than padding (Q5 and Q6_K: to 8 bits). Immutable, so
// thread-safe, after Pack.
class PackedMatrix {
 public:
  // Repacks `tensor` on the threads of `pool` into a piece of `memory`.
  //   kInvalidArgument    the tensor is not a matrix of whole blocks
  //   kResourceExhausted  no memory
  static absl::StatusOr<PackedMatrix> Pack(const checkpoint::Tensor& tensor, ThreadPool& pool,
                                           WeightMemory& memory);
  PackedMatrix() = default;
  PackedMatrix(PackedMatrix&&) noexcept = default;
  PackedMatrix& operator=(PackedMatrix&&) noexcept = default;

  TileFormat format() const { return format_; }
  int rows() const { return rows_; }
  int columns() const { return columns_; }
  int num_tiles() const { return (rows_ + kTileRows - 1) / kTileRows; }
  int num_groups() const { return columns_ / kGroup; }
  bool empty() const { return data_ == nullptr; }
  // 64-byte aligned.
  const std::byte* Tile(int tile) const { return data_.get() + tile_bytes_ * tile; }
  std::size_t tile_bytes() const { return tile_bytes_; }
  std::size_t bytes() const { return tile_bytes_ * num_tiles(); }

 private:
  PackedMatrix(TileFormat format, int rows, int columns);
  TileFormat format_ = TileFormat::kF32;
  int rows_ = 0;
  int columns_ = 0;
  std::size_t tile_bytes_ = 0;
  std::shared_ptr<std::byte> data_;
};

// The format a tensor of `dtype` is packed into.
TileFormat TileFormatFor(checkpoint::DType dtype);

}  // namespace baton::engine::cpu
