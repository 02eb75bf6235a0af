// Copies a list of pieces. A grid row per piece; the blocks of a row take turns in it, each thread
// a 16-byte word at a time, four of them under way. Bound by memory: 2 bytes moved per byte copied.
#include "kvtransfer/cuda/kernels/copy_pieces.h"

#include <algorithm>

#include "gpu/portable.h"

namespace baton::kvtransfer::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWordsPerThread = 4;
// Few enough that a transfer leaves most of the device to the model, which computes beside it.
constexpr std::uint64_t kMostBlocksPerPiece = 8;

__global__ void __launch_bounds__(kThreads)
    CopyPiecesBlocksPerPiece(const CopyPiece* __restrict__ pieces) {
  const CopyPiece piece = pieces[blockIdx.x];
  gpu::DeviceAssert(piece.bytes % sizeof(uint4) == 0, "a piece is no multiple of 16 bytes");
  const uint4* from = static_cast<const uint4*>(piece.from);
  uint4* to = static_cast<uint4*>(piece.to);
  const std::uint64_t num_words = piece.bytes / sizeof(uint4);
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.y) * kThreads * kWordsPerThread;
  for (std::uint64_t first =
           static_cast<std::uint64_t>(blockIdx.y) * kThreads * kWordsPerThread + threadIdx.x;
       first < num_words; first += stride) {
    uint4 words[kWordsPerThread];
#pragma unroll
    for (int i = 0; i < kWordsPerThread; ++i) {
      if (first + i * kThreads < num_words) words[i] = from[first + i * kThreads];
    }
#pragma unroll
    for (int i = 0; i < kWordsPerThread; ++i) {
      if (first + i * kThreads < num_words) to[first + i * kThreads] = words[i];
    }
  }
}

}  // namespace

cudaError_t CopyPieces(const CopyPiece* pieces, int num_pieces, std::uint64_t largest_bytes,
                       cudaStream_t stream) {
  if (num_pieces == 0) return cudaSuccess;
  if (num_pieces < 0 || largest_bytes == 0 || largest_bytes % sizeof(uint4) != 0) {
    return cudaErrorInvalidValue;
  }
  constexpr std::uint64_t kBlockBytes = kThreads * kWordsPerThread * sizeof(uint4);
  const std::uint64_t blocks =
      std::min(kMostBlocksPerPiece, (largest_bytes + kBlockBytes - 1) / kBlockBytes);
  return gpu::Launch(CopyPiecesBlocksPerPiece,
                     {.grid = dim3(num_pieces, static_cast<unsigned>(blocks)),
                      .block = dim3(kThreads),
                      .stream = stream},
                     pieces);
}

}  // namespace baton::kvtransfer::cuda
