#pragma once
#include <cstdint>
#include <vector>

#include "kvtransfer/plan.h"

namespace baton::kvtransfer {

// One block of a prompt in one layer at one source rank.
struct SourceBlock {
  int rank = 0;
  int layer = 0;
  int block = 0;
};

// Which source blocks of one transfer have been dealt with: one bit each and a count, so that "all
// of them" cannot be claimed while one is missing. Not thread-safe. O(1) per mark.
class BlockLedger {
 public:
  // Of those that `shape` says move; requires 0 <= first_blocks[l] <= num_blocks.
  explicit BlockLedger(const TransferShape& shape);

  // True if it is one of those to be dealt with.
  bool Contains(const SourceBlock& at) const;
  // Marks a block that Contains(). False if it was marked before; nothing changes then.
  bool Mark(const SourceBlock& at);
  bool marked(const SourceBlock& at) const { return bits_[Index(at)]; }
  std::int64_t num_missing() const { return num_expected_ - num_marked_; }
  std::int64_t num_marked() const { return num_marked_; }
  std::int64_t num_expected() const { return num_expected_; }
  bool complete() const { return num_marked_ == num_expected_; }
  // The first unmarked one in the order of ranks and layers; requires !complete(). O(blocks), for
  // messages.
  SourceBlock FirstMissing() const;
  int num_layers() const { return static_cast<int>(first_blocks_.size()); }
  int num_blocks() const { return num_blocks_; }
  int first_block(int layer) const { return first_blocks_[layer]; }

 private:
  std::size_t Index(const SourceBlock& at) const {
    const auto plane = static_cast<std::size_t>(sender_index_[at.rank]) * first_blocks_.size();
    return (plane + at.layer) * num_blocks_ + at.block;
  }
  std::vector<int> sender_index_;  // [source ranks]; -1: sends nothing
  std::vector<int> first_blocks_;  // [layers]
  int num_blocks_ = 0;
  std::int64_t num_expected_ = 0;
  std::int64_t num_marked_ = 0;
  std::vector<bool> bits_;  // [senders][layers][num_blocks]; those not expected stay false
};

}  // namespace baton::kvtransfer
