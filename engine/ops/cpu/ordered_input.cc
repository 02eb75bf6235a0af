#include "engine/ops/cpu/ordered_input.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/check.h"
#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/row_loop.h"

namespace baton::engine::cpu {

Activations OrderedInput::Apply(const Activations& x, std::span<const Product> products) {
  const bool ordered = std::any_of(products.begin(), products.end(), [](const Product& product) {
    return !product.weights->column_order().empty();
  });
  if (!ordered) return x;
  BATON_CHECK(x.floats != nullptr, "columns are moved as floats");
  const int columns = static_cast<int>(x.stride);
  const bool quantized = x.quantized != nullptr;
  const Activations result =
      buffer_.Reserve(x.num_rows, columns, {.floats = true, .quantized = quantized});
  for (const Product& product : products) {
    const std::span<const std::int32_t> order = product.weights->column_order();
    ForRows(pool_, product.rows.count, [&](int index, int) {
      const std::size_t row = product.rows.first + index;
      const float* from = x.floats + row * x.stride;
      float* to = buffer_.floats() + row * result.stride;
      if (order.empty()) {
        std::copy_n(from, columns, to);
      } else {
        for (int c = 0; c < columns; ++c) to[c] = from[order[c]];
      }
      if (quantized) QuantizeRow(to, columns, buffer_.groups() + row * result.groups);
    });
  }
  return result;
}

Activations OrderedInput::Apply(const Activations& x, const PackedMatrix& weights) {
  const Product all{.weights = &weights, .rows = {0, x.num_rows}};
  return Apply(x, {&all, 1});
}

}  // namespace baton::engine::cpu
