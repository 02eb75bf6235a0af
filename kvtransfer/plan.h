#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/transfer_ticket.h"

// Which bytes of which block go where when two worker groups cut the KV cache differently. Pure:
// both ends derive the same from the fingerprint and the two cuts.
namespace baton::kvtransfer {

// Bytes of one block of one layer in the pool of `rank`: [K or V][kv_head][token][head_dim] of the
// heads that KvHeadsOfRank gives it. 0 when the fingerprint's kv_dtype is unknown.
std::size_t BlockBytes(const ModelFingerprint& fingerprint, const KvCut& cut, int rank);

// A piece of one source block on its way to one destination rank. Offsets and sizes in bytes,
// within one block each.
struct BlockCopy {
  std::size_t source_offset = 0;
  std::int32_t destination_rank = 0;
  std::int32_t destination_block = 0;  // a prompt block of the destination, or its id in the pool
  std::size_t destination_offset = 0;
  std::size_t bytes = 0;
  bool operator==(const BlockCopy&) const = default;
};

// Which blocks make a transfer: of each sending rank and each layer the source blocks
// [first_blocks[layer], num_blocks), each once.
struct TransferShape {
  std::vector<bool> sends;        // [source ranks]; false: others send all that this one holds
  std::vector<int> first_blocks;  // [layers]
  int num_blocks = 0;             // source blocks of the prompt, moved or not

  int num_layers() const { return static_cast<int>(first_blocks.size()); }
  int num_senders() const;
};

// The re-slicing between a source group and a destination group. Immutable; thread-safe.
//
// Whole blocks leave a source rank as they lie in its pool. Each is taken apart into runs of one or
// more heads and tokens that lie together on both sides. A KV head that several source ranks hold
// is sent by the first of them; one that several destination ranks hold goes to each. Of a layer
// the tokens move that a row after the prompt sees, rounded outwards to whole blocks of the side
// with the smaller ones.
class TransferPlan {
 public:
  // Requires CheckCuts (fingerprint.h) to be OK.
  TransferPlan(const ModelFingerprint& fingerprint, const KvCut& source, const KvCut& destination);

  const KvCut& source() const { return source_; }
  const KvCut& destination() const { return destination_; }
  int num_layers() const { return static_cast<int>(windows_.size()); }
  std::size_t source_block_bytes(int rank) const {
    return source_heads_[rank] * head_bytes_source_;
  }

  // Of a prompt of `num_tokens` tokens.
  TransferShape ShapeOf(int num_tokens) const;
  // Appends the copies that source block `block` (of the prompt) of `rank` needs in `layer`, with
  // prompt blocks of the destination: by destination rank, then in the order of the source's bytes.
  // Nothing for a rank or block that does not move. Over all ranks and blocks of a transfer's shape
  // every byte that later rows see is written exactly once in each rank that holds it. O(copies).
  void AppendCopies(int rank, int layer, int block, int num_tokens,
                    std::vector<BlockCopy>* copies) const;

 private:
  // Heads that a source rank sends to a destination rank; indices are within the ranks' own heads.
  struct Overlap {
    int destination_rank = 0;
    int source_head = 0;
    int destination_head = 0;
    int num_heads = 0;
  };
  struct TokenRange {
    int begin = 0;
    int end = 0;
  };
  TokenRange MovedTokens(int layer, int num_tokens) const;

  const KvCut source_;
  const KvCut destination_;
  const std::size_t row_bytes_;                 // of one head and token, K or V
  const std::size_t head_bytes_source_;         // of one head in a source block, K and V
  std::vector<int> windows_;                    // [layers]
  std::vector<std::size_t> source_heads_;       // [source ranks]
  std::vector<std::size_t> destination_heads_;  // [destination ranks]
  std::vector<std::vector<Overlap>> overlaps_;  // [source ranks]
};

}  // namespace baton::kvtransfer
