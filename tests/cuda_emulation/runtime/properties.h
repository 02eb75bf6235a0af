#pragma once
#include <cstddef>

// The emulated device: an H100's figures as far as the project asks for them.
namespace cuda_emulation {

inline constexpr std::size_t kSharedPerBlock = std::size_t{48} << 10;
inline constexpr std::size_t kSharedPerBlockOptIn = std::size_t{227} << 10;
inline constexpr std::size_t kSharedPerMultiprocessor = std::size_t{228} << 10;
inline constexpr std::size_t kSharedReservedPerBlock = std::size_t{1} << 10;
inline constexpr int kThreadsPerMultiprocessor = 2048;
inline constexpr int kBlocksPerMultiprocessor = 32;
inline constexpr int kL2Bytes = 50 << 20;
inline constexpr int kMajor = 9, kMinor = 0;
inline constexpr std::size_t kMaxParameterBytes = 4096;

}  // namespace cuda_emulation
