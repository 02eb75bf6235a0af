#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace baton::kvtransfer {

// Which (layer, prompt block) pairs of one transfer have been dealt with: one bit each and a count,
// so that "all of them" cannot be claimed while one is missing. Not thread-safe. O(1) per mark.
class BlockLedger {
 public:
  // Of blocks [first_blocks[l], num_blocks) of each layer l; requires 0 <= first <= num_blocks.
  BlockLedger(std::vector<int> first_blocks, int num_blocks);

  // True if the pair is one of those to be dealt with.
  bool Contains(int layer, int block) const;
  // Marks a pair that Contains(). False if it was marked before; nothing changes then.
  bool Mark(int layer, int block);
  bool marked(int layer, int block) const { return bits_[Index(layer, block)]; }
  std::int64_t num_missing() const { return num_missing_; }
  std::int64_t num_marked() const { return num_pairs_ - num_missing_; }
  std::int64_t num_pairs() const { return num_pairs_; }
  bool complete() const { return num_missing_ == 0; }
  // The first unmarked (layer, block) in layer order; requires !complete(). O(pairs), for messages.
  std::pair<int, int> FirstMissing() const;
  int num_layers() const { return static_cast<int>(first_blocks_.size()); }
  int num_blocks() const { return num_blocks_; }
  int first_block(int layer) const { return first_blocks_[layer]; }

 private:
  std::size_t Index(int layer, int block) const {
    return static_cast<std::size_t>(layer) * num_blocks_ + block;
  }
  std::vector<int> first_blocks_;
  int num_blocks_;
  std::int64_t num_pairs_ = 0;
  std::int64_t num_missing_ = 0;
  std::vector<bool> bits_;  // [layers][num_blocks]; those that are no pairs stay false
};

}  // namespace baton::kvtransfer
