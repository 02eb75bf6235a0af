#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transfer_ticket.h"

namespace baton::kvtransfer {

// How one side cuts the KV cache into blocks. A block holds K and V of `block_size` tokens for
// `num_kv_heads` heads of one layer, in the order [K or V][kv_head][token][head_dim].
struct BlockLayout {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;           // tokens
  std::size_t block_bytes = 0;  // of one layer's block
  bool operator==(const BlockLayout&) const = default;
};

BlockLayout LayoutOf(const ModelFingerprint& fingerprint, std::size_t block_bytes);

// Per layer, the first block of a prompt of `num_tokens` tokens that has to move: the decode
// worker's first row stands at position num_tokens and sees no block before it there. Both ends
// derive it, so that each knows which (layer, block) pairs make a transfer.
std::vector<int> FirstMovedBlocks(const ModelFingerprint& fingerprint, int num_tokens);

// A contiguous piece of memory to move. Offsets lie within the block; a copy never crosses one.
struct Copy {
  std::int32_t source_block = 0;       // in the sender's pool
  std::int32_t destination_block = 0;  // in the receiver's pool
  std::size_t source_offset = 0;       // bytes
  std::size_t destination_offset = 0;  // bytes
  std::size_t bytes = 0;
  bool operator==(const Copy&) const = default;
};

// Where prompt blocks lie on both sides: source_blocks[i] and destination_blocks[i] hold prompt
// block i. The tables must outlive the call.
struct TransferTables {
  BlockLayout source;
  BlockLayout destination;
  std::span<const std::int32_t> source_blocks;
  std::span<const std::int32_t> destination_blocks;
};

// Returns the copies that bring prompt blocks [first_block, last_block) of `layer` from the source
// pool to the destination pool, in prompt order; together they cover every byte of those blocks
// exactly once. Pure; O(last_block - first_block).
//
// Both sides must cut alike today. Unequal head counts (tensor-parallel sizes) or block sizes make
// several copies per block, one per contiguous head slice; only this function changes then.
//   kFailedPrecondition  the layouts differ; names the first field that does
//   kInvalidArgument     layer, range or tables do not fit together
absl::StatusOr<std::vector<Copy>> PlanCopies(const TransferTables& tables, int layer,
                                             int first_block, int last_block);

}  // namespace baton::kvtransfer
