#pragma once
#include <cuda_runtime_api.h>

#include "engine/ops/cuda/kernels/weight_view.h"

namespace baton::engine::cuda {

// Rows that FewRowsMatmul takes.
inline constexpr int kMaxFewRows = 8;

// y = x W^T + bias (or y += ...) for 1..kMaxFewRows rows of x and weights of any format, without
// tensor cores: at so few rows a product takes as long as reading the weights, which is done once
// in 16-byte pieces. Sums in float in an order that depends on the columns only, so a row's result
// does not depend on the number of rows.
//   x: [num_rows, x_stride] of T, x_stride a multiple of 8; y: [num_rows, y_stride] of T or float;
//   bias: [rows of W] of y's type, or null; T: weights.type
struct FewRowsArguments {
  WeightView weights;
  const void* x;
  int x_stride;
  int num_rows;
  const void* bias;
  void* y;
  int y_stride;
  bool float_output;
  bool add;
};
cudaError_t FewRowsMatmul(const FewRowsArguments& arguments, cudaStream_t stream);

}  // namespace baton::engine::cuda
