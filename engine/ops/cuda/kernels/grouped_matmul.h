#pragma once
#include <cuda_runtime_api.h>

#include "engine/ops/cuda/kernels/weight_view.h"

namespace baton::engine::cuda {

// For each group g of rows [offsets[g], offsets[g + 1]): y = x W_g^T + bias_g (or y += ...), where
// W_g is rows [g * rows_per_group, (g + 1) * rows_per_group) of `weights`. On tensor cores, for
// weights of any format: quantized ones become T on their way to shared memory. Sums run over the
// columns in steps of 16 in ascending order for every shape, so a row's result depends on nothing
// but its group.
struct GroupedArguments {
  WeightView weights;  // [num_groups * rows_per_group, columns]; type: T
  int num_groups;
  int rows_per_group;
  // [num_groups + 1] on the device, ascending from 0; null: one group of num_rows rows.
  const int* offsets;
  // [num_rows] on the device: the row of x that row r reads; null: r.
  const int* x_rows;
  const void* x;  // [*, x_stride] of T, x_stride a multiple of 8, 16-byte aligned
  int x_stride;
  int num_rows;      // at least offsets[num_groups]
  const void* bias;  // [num_groups * rows_per_group] of y's type, or null
  void* y;           // [num_rows, y_stride] of T or float
  int y_stride;
  bool float_output;
  bool add;
};
cudaError_t GroupedMatmul(const GroupedArguments& arguments, cudaStream_t stream);

}  // namespace baton::engine::cuda
