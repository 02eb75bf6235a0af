#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace baton::engine::cuda {

// values[i] = cap * tanh(values[i] / cap); nothing where cap is 0.
//   values: [count] float, at a multiple of 16 bytes
// Moves 8 bytes per element. Source: Gemma 2 (arXiv:2408.00118), section 2.
cudaError_t SoftCap(float cap, std::size_t count, float* values, cudaStream_t stream);

}  // namespace baton::engine::cuda
