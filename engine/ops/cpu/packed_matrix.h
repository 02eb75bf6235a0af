#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "checkpoint/tensor.h"
#include "engine/ops/cpu/weight_memory.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// Output rows of one weight tile: one 512-bit register of 32-bit lanes.
inline constexpr int kTileRows = 16;
// Columns that share one activation scale, and (but for Q2_K, Q3_K, Q6_K) one weight scale.
inline constexpr int kGroup = 32;

// How a tile keeps its weights. Integers are unsigned with an offset, so that one instruction
// multiplies them by signed activations: weight = scale * (stored - offset) + min.
enum class TileFormat : std::uint8_t {
  kInt4Offset8,          // Q4_0: offset 8, f16 scale per 32
  kInt4Min,              // Q4_1: offset 0, f16 scale and min per 32
  kInt4MinF32,           // Q4_K: offset 0, f32 scale and min per 32
  kInt8,                 // Q8_0, Q5_0: offset 128, f16 scale per 32
  kInt8Min,              // Q5_1: offset 128, f16 scale and min per 32
  kInt8MinF32,           // Q5_K: offset 128, f32 scale and min per 32
  kInt8HalfGroupF32,     // Q6_K: offset 128, f32 scale per 16
  kInt2HalfGroupMinF32,  // Q2_K: offset 0, f32 scale and min per 16
  kInt4HalfGroupF32,     // Q3_K: offset 4, f32 scale per 16
  kInt4Zero,             // INT4 (AWQ, GPTQ): f16 scale and 8-bit zero per 32; min = -scale * zero
  kIq4,                  // IQ4_NL: codes of a table, f16 scale per 32
  kIq4F32,               // IQ4_XS: codes of a table, f32 scale per 32
  kFp4F32,               // MXFP4: codes of a table, f32 scale per 32
  kF16,
  kBF16,
  kF32,
};

// The table that 4-bit codes stand for entries of, once in a register: the codes are looked up as
// they are loaded, and what the products see are bytes.
enum class CodeTable : std::uint8_t { kNone, kIq4, kFp4 };

// What a kernel needs to know of a format at compile time.
struct TileFormatTraits {
  int bits = 0;  // per stored weight
  bool is_integer = false;
  bool has_min = false;
  bool wide_scales = false;  // f32 rather than f16
  int scale_columns = kGroup;
  int offset = 0;  // of what the products see: the stored integer, or its entry of the table
  bool has_zero = false;
  CodeTable table = CodeTable::kNone;
  // Bits of what the products see: up to 4 (plain numbers to 15), or 8 (any byte).
  constexpr int product_bits() const { return table == CodeTable::kNone && bits <= 4 ? 4 : 8; }
  // Vectors of 16 scales, and of scales and mins, per group; the bytes of them (and of the zeros)
  // and of a whole group.
  constexpr int scales_per_group() const { return kGroup / scale_columns; }
  constexpr int scale_vectors() const { return scales_per_group() * (has_min ? 2 : 1); }
  constexpr int scale_bytes() const {
    return scale_vectors() * kTileRows * (wide_scales ? 4 : 2) + (has_zero ? kTileRows : 0);
  }
  constexpr int group_bytes() const { return scale_bytes() + bits * kGroup * kTileRows / 8; }
};
constexpr TileFormatTraits TraitsOf(TileFormat format) {
  const auto integers = [](int bits, int offset) {
    return TileFormatTraits{.bits = bits, .is_integer = true, .offset = offset};
  };
  TileFormatTraits traits;
  switch (format) {
    case TileFormat::kInt4Offset8:
      return integers(4, 8);
    case TileFormat::kInt4Min:
      traits = integers(4, 0);
      traits.has_min = true;
      return traits;
    case TileFormat::kInt4MinF32:
      traits = integers(4, 0);
      traits.has_min = traits.wide_scales = true;
      return traits;
    case TileFormat::kInt8:
      return integers(8, 128);
    case TileFormat::kInt8Min:
      traits = integers(8, 128);
      traits.has_min = true;
      return traits;
    case TileFormat::kInt8MinF32:
      traits = integers(8, 128);
      traits.has_min = traits.wide_scales = true;
      return traits;
    case TileFormat::kInt8HalfGroupF32:
      traits = integers(8, 128);
      traits.wide_scales = true;
      traits.scale_columns = kGroup / 2;
      return traits;
    case TileFormat::kInt2HalfGroupMinF32:
      traits = integers(2, 0);
      traits.has_min = traits.wide_scales = true;
      traits.scale_columns = kGroup / 2;
      return traits;
    case TileFormat::kInt4HalfGroupF32:
      traits = integers(4, 4);
      traits.wide_scales = true;
      traits.scale_columns = kGroup / 2;
      return traits;
    case TileFormat::kInt4Zero:
      traits = integers(4, 0);
      traits.has_zero = true;
      return traits;
    case TileFormat::kIq4:
      traits = integers(4, 128);
      traits.table = CodeTable::kIq4;
      return traits;
    case TileFormat::kIq4F32:
      traits = integers(4, 128);
      traits.table = CodeTable::kIq4;
      traits.wide_scales = true;
      return traits;
    case TileFormat::kFp4F32:
      traits = integers(4, 128);
      traits.table = CodeTable::kFp4;
      traits.wide_scales = true;
      return traits;
    case TileFormat::kF16:
    case TileFormat::kBF16:
      traits.bits = 16;
      return traits;
    case TileFormat::kF32:
      traits.bits = 32;
      return traits;
  }
  return traits;
}

// A weight matrix [rows, columns] in the order the kernels read it: tiles of 16 output rows, each
// one contiguous piece of memory, rows beyond the last padded with zeros.
//   float formats    [columns][16]
//   integer formats  for each group of 32 columns its scales, then its weights, so that a tile is
//   read as one stream (a second one for scales halves the speed of reading from memory):
//     scales  [16] for each of its scales (one, or one for each half), then as many mins; then,
//             for kInt4Zero, [16] zeros of one byte
//     8 bits  [8 steps][16 rows][4]: step s holds columns 4s .. 4s+3 of its group
//     4 bits  [4 steps][16 rows][4]: low nibbles are step s, high nibbles step s + 4
//     2 bits  [2 steps][16 rows][4]: bit pair p is step s + 2p
// The bytes of a weight never grow by more than padding; Q5 and Q6_K grow to 8 bits, Q3_K to 4, and
// the small integer scales of K types and IQ4_XS to floats (at most 2 bits a weight, Q2_K 4).
// Immutable, so thread-safe, after Pack.
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
  // Column c multiplies activation column_order()[c]; empty: c. Of the tensor, whose checkpoint
  // must outlive this.
  std::span<const std::int32_t> column_order() const { return column_order_; }
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
  std::span<const std::int32_t> column_order_;
  std::shared_ptr<std::byte> data_;
};

// The format a tensor of `dtype` is packed into.
TileFormat TileFormatFor(checkpoint::DType dtype);

}  // namespace baton::engine::cpu
