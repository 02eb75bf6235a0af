#include "engine/ops/reference/matmul.h"

#include <cstddef>

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

void MatMul(const checkpoint::Tensor& weight, const float* x, int num_rows, float* out,
            std::vector<float>& scratch) {
  const std::int64_t columns = weight.columns(), out_columns = weight.rows();
  scratch.resize(columns);
  for (std::int64_t r = 0; r < out_columns; ++r) {
    checkpoint::DequantizeRow(weight.dtype, weight.data.data() + r * weight.row_bytes(), columns,
                              scratch.data());
    for (std::int64_t t = 0; t < num_rows; ++t) {
      out[t * out_columns + r] = Dot(scratch.data(), x + t * columns, static_cast<int>(columns));
    }
  }
}

}  // namespace baton::engine::reference
