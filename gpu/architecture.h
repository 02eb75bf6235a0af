#pragma once
#include <cstddef>

namespace baton::gpu {

// Shared memory that the blocks on an SM may have together, of the architecture being compiled for:
// 163 KiB of 8.0, 227 KiB of 9.0. For launch bounds, which ask for no more blocks than fit; beside
// portable.h, since few kernels care.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr std::size_t kSharedMemoryPerSm = 163 * 1024;
#else
inline constexpr std::size_t kSharedMemoryPerSm = 227 * 1024;
#endif

}  // namespace baton::gpu
