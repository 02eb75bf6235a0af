// Copies of rows, and casts: 16-byte accesses, each byte moved once.
#include "engine/ops/cuda/kernels/rows.h"

#include "gpu/vector_access.h"

namespace baton::engine::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    GatherBlockPerRow(const uint4* __restrict__ x, const int* __restrict__ rows, int vectors,
                      uint4* __restrict__ out) {
  const int from = rows[blockIdx.x];
  if (from < 0) return;
  const uint4* source = x + static_cast<std::size_t>(from) * vectors;
  uint4* to = out + static_cast<std::size_t>(blockIdx.x) * vectors;
  for (int i = threadIdx.x; i < vectors; i += kThreads) to[i] = source[i];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    CastThreadPer8(const float* __restrict__ x, std::size_t count, T* __restrict__ out) {
  const std::size_t first = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * 8;
  if (first + 8 <= count) {
    float values[8];
    gpu::LoadFloats8(x + first, values);
    gpu::StoreFloats8(out + first, values);
    return;
  }
  for (std::size_t i = first; i < count; ++i) out[i] = gpu::FromFloat<T>(x[i]);
}

}  // namespace

template <class T>
cudaError_t GatherRows(const T* x, const int* rows, int num_rows, int columns, T* out,
                       cudaStream_t stream) {
  if (num_rows < 0 || columns <= 0 || columns * sizeof(T) % sizeof(uint4) != 0) {
    return cudaErrorInvalidValue;
  }
  if (num_rows == 0) return cudaSuccess;
  const int vectors = static_cast<int>(columns * sizeof(T) / sizeof(uint4));
  return gpu::Launch(
      GatherBlockPerRow, {.grid = dim3(num_rows), .block = dim3(kThreads), .stream = stream},
      reinterpret_cast<const uint4*>(x), rows, vectors, reinterpret_cast<uint4*>(out));
}

template <class T>
cudaError_t Cast(const float* x, std::size_t count, T* out, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const std::size_t blocks = (count + 8 * kThreads - 1) / (8 * kThreads);
  if (blocks > 0x7fffffffu) return cudaErrorInvalidValue;
  return gpu::Launch(
      CastThreadPer8<T>,
      {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .stream = stream}, x,
      count, out);
}

template cudaError_t GatherRows(const __nv_bfloat16*, const int*, int, int, __nv_bfloat16*,
                                cudaStream_t);
template cudaError_t GatherRows(const __half*, const int*, int, int, __half*, cudaStream_t);
template cudaError_t GatherRows(const float*, const int*, int, int, float*, cudaStream_t);
template cudaError_t Cast(const float*, std::size_t, __nv_bfloat16*, cudaStream_t);
template cudaError_t Cast(const float*, std::size_t, __half*, cudaStream_t);

}  // namespace baton::engine::cuda
