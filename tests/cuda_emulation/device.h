#pragma once
// What nvcc knows without being told, for kernels that g++ compiles. NVIDIA's own headers give the
// types (float4, __half, __nv_bfloat16); this gives the qualifiers' absence, the builtin variables
// and functions. Kernels include it through gpu/portable.h only.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define __launch_bounds__(...)
#undef __shared__  // kernels use gpu::SharedMemory<T>(), which the emulation allocates per block
#undef __grid_constant__
#define __grid_constant__

#include "cuda_emulation/device/arithmetic.h"
#include "cuda_emulation/device/atomics.h"
#include "cuda_emulation/device/half_arithmetic.h"
#include "cuda_emulation/device/matrix.h"
#include "cuda_emulation/device/memory.h"
#include "cuda_emulation/device/synchronization.h"
#include "cuda_emulation/device/warp.h"
