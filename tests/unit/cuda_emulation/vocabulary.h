#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

// One kernel for each word of gpu/portable.h whose meaning a lane's layout decides, so that the
// same test can run in the emulation and on a device. All run one warp and write what each lane
// got.
namespace baton::vocabulary {

// a: [16, 16], b: [16, 8] in rows, out: [16, 8].
template <class T>
cudaError_t MultiplyTile(const T* a, const T* b, float* out, cudaStream_t stream);
// a: [16, 32], b: [32, 8] in rows, out: [16, 8].
cudaError_t MultiplyBytes(const std::int8_t* a, const std::int8_t* b, int* out,
                          cudaStream_t stream);
// in: [32, 8] 16-bit elements; out: [lane][matrix] of `matrices` 2 or 4.
cudaError_t LoadMatrices(const std::uint16_t* in, int matrices, bool transpose, std::uint32_t* out,
                         cudaStream_t stream);
// Copies `bytes` 4, 8 or 16, of which `valid` are read, for each lane.
cudaError_t CopyParts(const void* in, int bytes, int valid, void* out, cudaStream_t stream);

inline constexpr int kNumWords = 20;
// out: [lane][kNumWords], a word for each builtin of integers and bits.
cudaError_t Integers(std::uint32_t* out, cudaStream_t stream);
// out: [lane][kNumWords], values of shuffles, votes and reductions.
cudaError_t Lanes(std::uint32_t* out, cudaStream_t stream);

}  // namespace baton::vocabulary
