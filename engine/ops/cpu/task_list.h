#pragma once
#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"

namespace baton::engine::cpu {

// Activation rows of one task: the block of results, 128 x 16 floats, stays in the first cache.
inline constexpr int kRowBlock = 128;

// Rows [first, first + count) of some activations.
struct RowRange {
  int first = 0;
  int count = 0;
};

// Cuts matrix products into the tasks of one loop. Each product is of all tiles of one matrix with
// a range of rows; a task is of a run of its tiles with up to kRowBlock of its rows.
class TaskList {
 public:
  struct Task {
    int product = 0;  // in the order of Add
    int first_tile = 0;
    int end_tile = 0;
    RowRange rows;
  };

  // rows.count may be 0.
  void Add(int num_tiles, RowRange rows) {
    products_.push_back({num_tiles, rows, 0});
    num_units_ += std::int64_t{num_tiles} * RowBlocks(rows);
    most_rows_ = std::max(most_rows_, rows.count);
  }

  // A length of runs that suits `num_threads`: with few rows long, so that each thread streams
  // weights; with many short enough to balance.
  int TilesPerTask(int num_threads) const {
    const std::int64_t wanted = num_units_ / (8 * num_threads);
    return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, most_rows_ >= 32 ? 2 : 16));
  }

  // Fixes the cut, once everything is added. Returns the number of tasks.
  int Cut(int tiles_per_task) {
    tiles_per_task_ = tiles_per_task;
    int num_tasks = 0;
    for (Product& product : products_) {
      product.first_task = num_tasks;
      num_tasks +=
          RowBlocks(product.rows) * ((product.num_tiles + tiles_per_task - 1) / tiles_per_task);
    }
    return num_tasks;
  }

  // Task `index` of those that Cut counted.
  Task At(int index) const {
    const auto next = std::upper_bound(
        products_.begin(), products_.end(), index,
        [](int task, const Product& product) { return task < product.first_task; });
    const Product& product = *(next - 1);
    const int local = index - product.first_task;
    const int row_blocks = RowBlocks(product.rows);
    const int row = local % row_blocks * kRowBlock;
    const int tile = local / row_blocks * tiles_per_task_;
    return {.product = static_cast<int>(next - products_.begin()) - 1,
            .first_tile = tile,
            .end_tile = std::min(product.num_tiles, tile + tiles_per_task_),
            .rows = {product.rows.first + row, std::min(kRowBlock, product.rows.count - row)}};
  }

 private:
  struct Product {
    int num_tiles = 0;
    RowRange rows;
    int first_task = 0;
  };
  static int RowBlocks(RowRange rows) { return (rows.count + kRowBlock - 1) / kRowBlock; }

  absl::InlinedVector<Product, 4> products_;
  std::int64_t num_units_ = 0;  // tiles by row blocks
  int most_rows_ = 0;
  int tiles_per_task_ = 1;
};

}  // namespace baton::engine::cpu
