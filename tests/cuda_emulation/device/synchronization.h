#pragma once
// Barriers and fences.
#include "cuda_emulation/kernel_api.h"

inline void __syncthreads(const cuda_emulation::Site& site = cuda_emulation::Site::Here()) {
  cuda_emulation::BlockSync(0, 0, site);
}
inline void __syncwarp(std::uint32_t mask = 0xffffffffu,
                       const cuda_emulation::Site& site = cuda_emulation::Site::Here()) {
  cuda_emulation::WarpSync(mask, site);
}
inline void __threadfence() { cuda_emulation::Fence(); }
inline void __threadfence_block() { cuda_emulation::Fence(); }
inline void __threadfence_system() { cuda_emulation::Fence(); }
[[noreturn]] inline void __trap() { cuda_emulation::DeviceFail("__trap()"); }
inline void __nanosleep(unsigned) {}
