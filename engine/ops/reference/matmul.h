#pragma once
#include <vector>

#include "checkpoint/tensor.h"

namespace baton::engine::reference {

// out[t, r] = sum over i of weight[r, i] * x[t, i].
//   weight: [out_columns, columns], any dtype; x: [num_rows, columns]; out: [num_rows, out_columns]
// Where the weight has a column order, weight[r, column_order[c]] is column c of its data.
// Each weight row is dequantized once, into `scratch`, and used for all rows of x; a whole weight
// never exists in float. Sums run in sixteen lanes joined in a fixed order, so that a compiler can
// vectorise them, a row does not depend on the others, and rounding errors stay small.
void MatMul(const checkpoint::Tensor& weight, const float* x, int num_rows, float* out,
            std::vector<float>& scratch);

// The dot product as MatMul forms it.
float Dot(const float* a, const float* b, int count);

}  // namespace baton::engine::reference
