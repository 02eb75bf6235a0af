#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "absl/container/inlined_vector.h"
#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/task_list.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// Computes one tile by the kernel that fits: integer products where the weights are integers and
// `x` is quantized, float products otherwise.
inline void ComputeTile(const PackedMatrix& weights, int tile, const Activations& x, int first_row,
                        int num_rows, float* out) {
  if (x.quantized != nullptr && TraitsOf(weights.format()).is_integer) {
    IntegerTile(weights, tile, x, first_row, num_rows, out);
  } else {
    FloatTile(weights, tile, x, first_row, num_rows, out);
  }
}

// Some rows of the activations times one matrix.
struct Product {
  const PackedMatrix* weights = nullptr;
  RowRange rows;
  const Activations* x = nullptr;  // null: those of the call
};

// Activations must have their columns in the order of the weights they meet (ordered_input.h).
// Computes `products` on the threads of `pool`, and hands each finished piece to
// sink(product, column, num_columns, first_row, num_rows, block): results of products[product],
// output columns [column, column + num_columns), num_columns <= 16, of rows [first_row, first_row +
// num_rows) of `x`, in `block` [num_rows, 16]. The sink runs on many threads at once, on disjoint
// pieces.
template <class Sink>
void MatMul(ThreadPool& pool, const Activations& x, std::span<const Product> products,
            const Sink& sink) {
  TaskList tasks;
  for (const Product& product : products) tasks.Add(product.weights->num_tiles(), product.rows);
  const int num_tasks = tasks.Cut(tasks.TilesPerTask(pool.num_threads()));
  pool.ParallelFor(num_tasks, [&](int index, int) {
    alignas(64) float block[kRowBlock * kTileRows];
    const TaskList::Task task = tasks.At(index);
    const PackedMatrix& weights = *products[task.product].weights;
    const Activations& input = products[task.product].x != nullptr ? *products[task.product].x : x;
    for (int tile = task.first_tile; tile < task.end_tile; ++tile) {
      ComputeTile(weights, tile, input, task.rows.first, task.rows.count, block);
      const int column = tile * kTileRows;
      sink(task.product, column, std::min(kTileRows, weights.rows() - column), task.rows.first,
           task.rows.count, block);
    }
  });
}

// The same of all rows of `x` times every matrix of `parts`.
template <class Sink>
void MatMul(ThreadPool& pool, const Activations& x, std::span<const PackedMatrix* const> parts,
            const Sink& sink) {
  absl::InlinedVector<Product, 4> products;
  for (const PackedMatrix* part : parts) products.push_back({part, {0, x.num_rows}});
  MatMul(pool, x, std::span<const Product>(products.data(), products.size()), sink);
}

// Writes a finished block of results, each with the bias of its column where `bias` is not null,
// to rows of `to`, `stride` apart.
inline void StoreBlock(const float* block, const float* bias, int num_rows, int num_columns,
                       std::size_t stride, float* to) {
  for (int row = 0; row < num_rows; ++row, to += stride, block += kTileRows) {
    std::copy(block, block + num_columns, to);
    if (bias == nullptr) continue;
    for (int i = 0; i < num_columns; ++i) to[i] += bias[i];
  }
}

// Adds it to them.
inline void AddBlock(const float* block, const float* bias, int num_rows, int num_columns,
                     std::size_t stride, float* to) {
  for (int row = 0; row < num_rows; ++row, to += stride, block += kTileRows) {
    if (bias == nullptr) {
      for (int i = 0; i < num_columns; ++i) to[i] += block[i];
    } else {
      for (int i = 0; i < num_columns; ++i) to[i] += block[i] + bias[i];
    }
  }
}

}  // namespace baton::engine::cpu
