// Gated activations: a thread per 8 outputs, 16-byte accesses, float arithmetic in forms that keep
// their digits where the activation is close to zero.
#include "engine/ops/cuda/kernels/activation.h"

#include <cmath>
#include <cstddef>

#include "gpu/vector_access.h"

namespace baton::engine::cuda {
namespace {

constexpr int kThreads = 128;

template <GateActivation kActivation>
__device__ __forceinline__ float Activate(float x) {
  if constexpr (kActivation == GateActivation::kSilu) {
    return x / (1.0f + expf(-x));
  } else if constexpr (kActivation == GateActivation::kGeluTanh) {
    // x * (1 + tanh(u)) / 2 = x / (1 + e^-2u): loses no digits where tanh(u) is close to -1.
    constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
    return x / (1.0f + expf(-kTwoRootTwoOverPi * (x + 0.044715f * x * x * x)));
  } else {
    constexpr float kRootHalf = 0.70710678118654752f;
    return 0.5f * x * erfcf(-x * kRootHalf);
  }
}

template <GateActivation kActivation, class T>
__global__ void __launch_bounds__(kThreads)
    GatedActivationThreadPer8(GatedRows rows, const T* __restrict__ gate_up, T* __restrict__ out) {
  const int row = static_cast<int>(blockIdx.x);
  const int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8;
  if (column >= rows.intermediate || (rows.num_used != nullptr && row >= *rows.num_used)) return;
  const std::size_t width = 2 * static_cast<std::size_t>(rows.intermediate);
  float gate[8], up[8];
  gpu::LoadFloats8(gate_up + row * width + column, gate);
  gpu::LoadFloats8(gate_up + row * width + rows.intermediate + column, up);
  if (rows.bias != nullptr) {
    const int bias_row = rows.bias_rows == nullptr ? 0 : rows.bias_rows[row];
    const float* bias = rows.bias + bias_row * width + column;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      gate[i] += bias[i];
      up[i] += bias[rows.intermediate + i];
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) gate[i] = Activate<kActivation>(gate[i]) * up[i];
  gpu::StoreFloats8(out + static_cast<std::size_t>(row) * rows.intermediate + column, gate);
}

template <GateActivation kActivation, class T>
cudaError_t LaunchActivation(const GatedRows& rows, const T* gate_up, T* out, cudaStream_t stream) {
  const int chunks = (rows.intermediate / 8 + kThreads - 1) / kThreads;
  return gpu::Launch(
      GatedActivationThreadPer8<kActivation, T>,
      {.grid = dim3(rows.num_rows, chunks), .block = dim3(kThreads), .stream = stream}, rows,
      gate_up, out);
}

}  // namespace

template <class T>
cudaError_t GatedActivation(GateActivation activation, const GatedRows& rows, const T* gate_up,
                            T* out, cudaStream_t stream) {
  if (rows.num_rows < 0 || rows.intermediate <= 0 || rows.intermediate % 8 != 0) {
    return cudaErrorInvalidValue;
  }
  if (rows.num_rows == 0) return cudaSuccess;
  switch (activation) {
    case GateActivation::kSilu:
      return LaunchActivation<GateActivation::kSilu>(rows, gate_up, out, stream);
    case GateActivation::kGeluTanh:
      return LaunchActivation<GateActivation::kGeluTanh>(rows, gate_up, out, stream);
    case GateActivation::kGelu:
      return LaunchActivation<GateActivation::kGelu>(rows, gate_up, out, stream);
  }
  return cudaErrorInvalidValue;
}

template cudaError_t GatedActivation(GateActivation, const GatedRows&, const __nv_bfloat16*,
                                     __nv_bfloat16*, cudaStream_t);
template cudaError_t GatedActivation(GateActivation, const GatedRows&, const __half*, __half*,
                                     cudaStream_t);
template cudaError_t GatedActivation(GateActivation, const GatedRows&, const float*, float*,
                                     cudaStream_t);

}  // namespace baton::engine::cuda
