#include "engine/ops/reference/embedding.h"

#include <cstddef>

namespace baton::engine::reference {

void Embedding(const checkpoint::Tensor& table, float scale, std::span<const std::int32_t> tokens,
               float* x) {
  const std::int64_t columns = table.columns();
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    checkpoint::DequantizeRow(table.dtype, table.data.data() + tokens[t] * table.row_bytes(),
                              columns, x + t * columns);
  }
  for (std::size_t i = 0; i < tokens.size() * columns; ++i) x[i] *= scale;
}

}  // namespace baton::engine::reference
