#pragma once
#include "gpu/portable.h"

// Sums and maxima over a warp or a block, in one order, so that results are equal in every bit
// whatever the schedule.
namespace baton::gpu {

inline constexpr unsigned kFullWarp = 0xffffffffu;

__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1) {
    x += __shfl_xor_sync(kFullWarp, x, distance);
  }
  return x;
}

__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1) {
    x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, distance));
  }
  return x;
}

// Sum over the block; every thread gets it. All threads call it; kThreads is a multiple of 32. A
// second use in one kernel needs another Tag, or a __syncthreads before it.
template <int kThreads, int Tag = 0>
__device__ __forceinline__ float BlockSum(float x) {
  struct Slots {
    float warp[kThreads / 32];
  };
  Slots& slots = SharedMemory<Slots, Tag>();
  x = WarpSum(x);
  if (threadIdx.x % 32 == 0) slots.warp[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) total += slots.warp[warp];
  return total;
}

}  // namespace baton::gpu
