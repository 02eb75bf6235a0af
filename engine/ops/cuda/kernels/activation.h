#pragma once
#include <cuda_runtime_api.h>

namespace baton::engine::cuda {

// checkpoint::Activation, which kernels do not include.
enum class GateActivation : unsigned char { kSilu, kGeluTanh, kGelu };

// Rows of an MLP between its matrix products. Pointers are device memory.
struct GatedRows {
  int num_rows;      // rows that there is memory for
  int intermediate;  // a multiple of 8
  // Where not null, rows from *num_used on are left alone: rows packed by expert, whose number only
  // the device knows.
  const int* num_used = nullptr;
  const float* bias = nullptr;  // [*, 2 * intermediate], or null
  // [num_rows], which row of `bias` a row takes; null: the first for all.
  const int* bias_rows = nullptr;
};

// out[r, i] = act(gate_up[r, i] + bias) * (gate_up[r, intermediate + i] + bias).
//   gate_up: [num_rows, 2 * intermediate]; out: [num_rows, intermediate]; both of T
//   (__nv_bfloat16, __half, float), at multiples of 16 bytes, not overlapping
// Finite wherever the reference is, up to T's range. Moves 3 * sizeof(T) bytes per element of out.
// Source: Shazeer 2020 (arXiv:2002.05202).
template <class T>
cudaError_t GatedActivation(GateActivation activation, const GatedRows& rows, const T* gate_up,
                            T* out, cudaStream_t stream);

}  // namespace baton::engine::cuda
