// Angles of rotary embeddings, a thread per row and pair: one cosine and one sine in double. A few
// thousand of them per step at decode; at prefill about a thousandth of a layer's work.
#include "engine/ops/cuda/kernels/rope_angles.h"

#include <cmath>

#include "gpu/portable.h"

namespace baton::engine::cuda {
namespace {

// The frequency of `pair` in a text of `length` tokens; the arithmetic of engine/model/rope.cc.
__device__ double Frequency(const DeviceRope& rope, int length, int pair) {
  if (rope.short_length == 0 || length <= rope.short_length) return rope.frequencies[pair];
  if (rope.long_frequencies != nullptr) return rope.long_frequencies[pair];
  const double stretch = rope.factor * length / rope.short_length - (rope.factor - 1);
  const double theta = rope.theta * pow(stretch, rope.dim / (rope.dim - 2.0));
  return pow(theta, -2.0 * pair / rope.dim);
}

__global__ void RopeAnglesThreadPerPair(DeviceRope rope, const int* __restrict__ positions,
                                        const int* __restrict__ text_lengths, int count,
                                        float* __restrict__ cosines, float* __restrict__ sines) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index >= count) return;
  const int num_pairs = rope.dim / 2;
  const int row = index / num_pairs;
  const int length = text_lengths == nullptr ? 0 : text_lengths[row];
  const double angle = positions[row] * Frequency(rope, length, index % num_pairs);
  cosines[index] = static_cast<float>(cos(angle)) * rope.magnitude;
  sines[index] = static_cast<float>(sin(angle)) * rope.magnitude;
}

}  // namespace

cudaError_t ComputeRopeAngles(const DeviceRope& rope, const int* positions, const int* text_lengths,
                              int num_rows, float* cos, float* sin, cudaStream_t stream) {
  if (num_rows < 0 || rope.dim <= 0 || rope.dim % 2 != 0 || rope.short_length < 0 ||
      (rope.short_length > 0 && text_lengths == nullptr) ||
      static_cast<long long>(num_rows) * (rope.dim / 2) > (1ll << 30)) {
    return cudaErrorInvalidValue;
  }
  if (num_rows == 0) return cudaSuccess;
  constexpr int kThreads = 128;
  const int count = num_rows * (rope.dim / 2);
  return gpu::Launch(
      RopeAnglesThreadPerPair,
      {.grid = dim3((count + kThreads - 1) / kThreads), .block = dim3(kThreads), .stream = stream},
      rope, positions, text_lengths, count, cos, sin);
}

}  // namespace baton::engine::cuda
