#include "engine/ops/reference/matmul.h"

#include <cstddef>
#include <cstdint>

namespace baton::engine::reference {

float Dot(const float* a, const float* b, int count) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) lanes[i % kLanes] += a[i] * b[i];
  float sum = 0.0f;
  for (const float lane : lanes) sum += lane;
  return sum;
}

namespace {

// scratch[i] = weight[row, i] in float.
void ReadRow(const checkpoint::Tensor& weight, std::int64_t row, std::vector<float>& scratch) {
  const std::int64_t columns = weight.columns();
  const std::byte* data = weight.data.data() + row * weight.row_bytes();
  scratch.resize(columns);
  if (weight.column_order.empty()) {
    checkpoint::DequantizeRow(weight.dtype, data, columns, scratch.data());
    return;
  }
  std::vector<float> stored(columns);
  checkpoint::DequantizeRow(weight.dtype, data, columns, stored.data());
  for (std::int64_t c = 0; c < columns; ++c) scratch[weight.column_order[c]] = stored[c];
}

}  // namespace

void MatMul(const checkpoint::Tensor& weight, const float* x, int num_rows, float* out,
            std::vector<float>& scratch) {
  const std::int64_t columns = weight.columns(), out_columns = weight.rows();
  for (std::int64_t r = 0; r < out_columns; ++r) {
    ReadRow(weight, r, scratch);
    for (std::int64_t t = 0; t < num_rows; ++t) {
      out[t * out_columns + r] = Dot(scratch.data(), x + t * columns, static_cast<int>(columns));
    }
  }
}

}  // namespace baton::engine::reference
