#pragma once
#include <algorithm>

#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// Runs fn(row, thread) for every row in [0, num_rows) on the threads of `pool`, several rows an
// index.
template <class Function>
void ForRows(ThreadPool& pool, int num_rows, const Function& fn) {
  constexpr int kRowsPerIndex = 8;
  pool.ParallelFor((num_rows + kRowsPerIndex - 1) / kRowsPerIndex, [&](int index, int thread) {
    const int end = std::min(num_rows, (index + 1) * kRowsPerIndex);
    for (int row = index * kRowsPerIndex; row < end; ++row) fn(row, thread);
  });
}

}  // namespace baton::engine::cpu
