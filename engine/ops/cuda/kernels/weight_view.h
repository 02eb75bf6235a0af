#pragma once
#include <cstddef>
#include <cstdint>

// Weight matrices as kernels see them in device memory. Plain views; a DeviceMatrix owns the bytes.
namespace baton::engine::cuda {

// What activations, and weights that are not quantized, are made of: `T` of the kernels.
enum class ElementType : std::uint8_t { kBF16, kF16 };

// How a matrix keeps its weights. Quantized ones come in groups of columns that share a scale s,
// and a zero z or minimum m: all of them f16.
enum class WeightFormat : std::uint8_t {
  kDense,     // T, as it is
  kInt8,      // signed byte q:   s * q
  kInt4,      // code q in 0..15: s * (q - 8)
  kInt4Zero,  // code q in 0..15: s * (q - z)
  kInt4Min,   // code q in 0..15: s * q + m
};

// Columns of one group at least; every group is a multiple of it.
inline constexpr int kWeightGroup = 32;

// [rows (outputs), columns (inputs)], row-major. Rows of weights and of scales are contiguous.
struct WeightView {
  WeightFormat format = WeightFormat::kDense;
  ElementType type = ElementType::kBF16;  // of a dense matrix, and of the inputs of a product
  int rows = 0;
  int columns = 0;  // quantized: a multiple of `group`; dense: a multiple of 8 for products
  int group = kWeightGroup;
  // A row: columns * 2 bytes dense, columns bytes of kInt8, columns / 2 of 4 bits: 16 bytes for
  // each 32 columns, column i of them in the low half of byte i, i + 16 in the high half. 16-byte
  // aligned.
  const std::byte* data = nullptr;
  // A row: columns / group times s, or the pair s, z or s, m; null when dense.
  const std::uint16_t* scales = nullptr;
  // Column c multiplies input column_order[c]; null: c. Quantized matrices only.
  const int* column_order = nullptr;

  constexpr bool quantized() const { return format != WeightFormat::kDense; }
  constexpr int values_per_group() const {
    return format == WeightFormat::kInt4Zero || format == WeightFormat::kInt4Min ? 2 : 1;
  }
  constexpr std::size_t row_bytes() const {
    const auto count = static_cast<std::size_t>(columns);
    return format == WeightFormat::kDense  ? count * 2
           : format == WeightFormat::kInt8 ? count
                                           : count / 2;
  }
  constexpr std::size_t scales_per_row() const {
    return quantized() ? static_cast<std::size_t>(columns / group) * values_per_group() : 0;
  }
  // Rows [first, first + count).
  constexpr WeightView Rows(int first, int count) const {
    WeightView part = *this;
    part.rows = count;
    part.data += row_bytes() * first;
    if (scales != nullptr) part.scales += scales_per_row() * first;
    return part;
  }
};

}  // namespace baton::engine::cuda
