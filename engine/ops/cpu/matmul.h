#pragma once
#include <algorithm>
#include <span>

#include "engine/ops/cpu/kernels.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// Activation rows of one task: the block of results, 128 x 16 floats, stays in the first cache.
inline constexpr int kRowBlock = 128;

// How a matrix product is cut into tasks: `tiles_per_task` tiles by up to kRowBlock rows. With few
// rows a task is a run of tiles, so that each thread streams weights; with many it is small enough
// to balance.
struct TaskGrid {
  TaskGrid(int num_tiles, int num_rows, int num_threads)
      : row_blocks((num_rows + kRowBlock - 1) / kRowBlock) {
    const int wanted = std::max(1, 8 * num_threads / std::max(1, row_blocks));
    tiles_per_task = std::clamp(num_tiles / wanted, 1, num_rows >= 32 ? 2 : 16);
    tile_runs = (num_tiles + tiles_per_task - 1) / tiles_per_task;
  }
  int num_tasks() const { return row_blocks * tile_runs; }
  int row_blocks;
  int tile_runs = 0;
  int tiles_per_task = 1;
};

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

// Multiplies the rows of `x` by every matrix of `parts` on the threads of `pool`, and hands each
// finished piece to sink(part, column, num_columns, first_row, num_rows, block): results of matrix
// `part`, output columns [column, column + num_columns), num_columns <= 16, in `block`
// [num_rows, 16]. The sink runs on many threads at once, on disjoint pieces.
template <class Sink>
void MatMul(ThreadPool& pool, const Activations& x, std::span<const PackedMatrix* const> parts,
            const Sink& sink) {
  int num_tiles = 0;
  for (const PackedMatrix* part : parts) num_tiles += part->num_tiles();
  const TaskGrid grid(num_tiles, x.num_rows, pool.num_threads());
  pool.ParallelFor(grid.num_tasks(), [&](int task, int) {
    alignas(64) float block[kRowBlock * kTileRows];
    const int first_row = task % grid.row_blocks * kRowBlock;
    const int num_rows = std::min(kRowBlock, x.num_rows - first_row);
    int tile = task / grid.row_blocks * grid.tiles_per_task;
    const int end = std::min(num_tiles, tile + grid.tiles_per_task);
    for (; tile < end; ++tile) {
      int part = 0;
      int local = tile;
      while (local >= parts[part]->num_tiles()) local -= parts[part++]->num_tiles();
      const PackedMatrix& weights = *parts[part];
      ComputeTile(weights, local, x, first_row, num_rows, block);
      const int column = local * kTileRows;
      sink(part, column, std::min(kTileRows, weights.rows() - column), first_row, num_rows, block);
    }
  });
}

}  // namespace baton::engine::cpu
