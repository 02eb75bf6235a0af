#include "engine/ops/cpu/activation_buffer.h"

#include <algorithm>
#include <cstddef>

#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/row_loop.h"

namespace baton::engine::cpu {

void ActivationForms::Add(const PackedMatrix& matrix, ComputeMode compute) {
  if (compute == ComputeMode::kFast && TraitsOf(matrix.format()).is_integer) {
    quantized = true;
  } else {
    floats = true;
  }
  if (!matrix.column_order().empty()) floats = true;
}

Activations ActivationBuffer::Reserve(int num_rows, int columns, const ActivationForms& forms) {
  Activations result{.stride = static_cast<std::size_t>(columns),
                     .groups = static_cast<std::size_t>(columns) / kGroup,
                     .num_rows = num_rows};
  if (forms.floats) result.floats = floats_.Reserve(num_rows * result.stride);
  if (forms.quantized) result.quantized = groups_.Reserve(num_rows * result.groups);
  return result;
}

Activations ActivationBuffer::Normalize(Matrix x, std::span<const std::int32_t> rows, int num_rows,
                                        std::span<const float> weight, float eps, bool quantized) {
  const Activations result = Reserve(num_rows, x.columns, {.floats = true, .quantized = quantized});
  ForRows(pool_, num_rows, [&](int row, int) {
    const std::size_t from = rows.empty() ? row : rows[row];
    float* to = floats() + row * result.stride;
    RmsNormRow(x.f32() + from * result.stride, weight.data(), eps, x.columns, to);
    if (quantized) QuantizeRow(to, x.columns, groups() + row * result.groups);
  });
  return result;
}

Activations ActivationBuffer::Prepare(Matrix x, bool quantized) {
  Activations result = Reserve(x.rows, x.columns, {.quantized = quantized});
  result.floats = x.f32();
  if (!quantized) return result;
  ForRows(pool_, x.rows, [&](int row, int) {
    QuantizeRow(x.f32() + row * result.stride, x.columns, groups() + row * result.groups);
  });
  return result;
}

Activations ActivationBuffer::Gather(const Activations& from, std::span<const std::int32_t> rows) {
  const Activations result =
      Reserve(static_cast<int>(rows.size()), static_cast<int>(from.stride),
              {.floats = from.floats != nullptr, .quantized = from.quantized != nullptr});
  ForRows(pool_, result.num_rows, [&](int row, int) {
    const std::size_t at = rows[row];
    if (from.floats != nullptr) {
      std::copy_n(from.floats + at * from.stride, from.stride, floats() + row * result.stride);
    }
    if (from.quantized != nullptr) {
      std::copy_n(from.quantized + at * from.groups, from.groups, groups() + row * result.groups);
    }
  });
  return result;
}

}  // namespace baton::engine::cpu
