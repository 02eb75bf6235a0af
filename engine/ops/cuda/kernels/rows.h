#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace baton::engine::cuda {

// out[i, :] = x[rows[i], :]; where rows[i] is negative, out[i, :] is left alone.
//   x: [*, columns], out: [num_rows, columns], both of T (__nv_bfloat16, __half, float); rows:
//   [num_rows] on the device; columns * sizeof(T) a multiple of 16; at multiples of 16 bytes
template <class T>
cudaError_t GatherRows(const T* x, const int* rows, int num_rows, int columns, T* out,
                       cudaStream_t stream);

// out[i] = x[i], rounded to nearest even (to T's infinity beyond its range).
//   x: [count] float, out: [count] of T (__nv_bfloat16, __half); at multiples of 16 bytes
template <class T>
cudaError_t Cast(const float* x, std::size_t count, T* out, cudaStream_t stream);

}  // namespace baton::engine::cuda
