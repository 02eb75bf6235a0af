#pragma once
#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "cuda_emulation/controls.h"

namespace cuda_emulation {

struct GridSpec {
  dim3 grid, block;
  std::size_t dynamic_shared_bytes = 0;
  std::function<void()> body;  // one thread of the kernel
  const char* name = "kernel";
};

struct GridResult {
  cudaError_t error = cudaSuccess;
  std::string message;
};

// Runs a grid to its end on the calling thread and, for grids of several blocks, on helpers that
// all grids share. Any number of threads may call it at once. The caller has checked the shape.
GridResult RunGrid(const GridSpec& spec);

// One run of RunGrid, shared by the threads that work on it.
struct Grid {
  const GridSpec& spec;
  const Schedule schedule;
  const std::uint64_t num_blocks;
  std::atomic<std::uint64_t> next_block{0};
  int helpers = 0;  // guarded by the queue of grids
  char start_tag = 0, end_tag = 0;
  std::mutex mutex;
  GridResult result;  // guarded by mutex

  void Fail(const std::string& message);
};

}  // namespace cuda_emulation
