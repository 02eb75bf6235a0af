#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace baton::kvtransfer::cuda {

// A contiguous run of bytes to copy within the device's memory. Addresses and sizes are multiples
// of 16 bytes; pieces of one call overlap in nothing that is written.
struct CopyPiece {
  const void* from;
  void* to;
  std::uint64_t bytes;
};

// Copies all pieces in one launch: KV blocks gathered into a message, or a message scattered into
// blocks. Reads and writes every byte once, in 16-byte words.
//   pieces: [num_pieces] in device memory, read when the launch runs
//   largest_bytes: of any piece; decides how many blocks share one
// cudaErrorInvalidValue if a count is negative or `largest_bytes` no multiple of 16.
cudaError_t CopyPieces(const CopyPiece* pieces, int num_pieces, std::uint64_t largest_bytes,
                       cudaStream_t stream);

}  // namespace baton::kvtransfer::cuda
