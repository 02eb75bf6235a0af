#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace baton::kvtransfer {

// Which (layer, prompt block) pairs of one transfer have been dealt with: one bit each and a count,
// so that "all of them" cannot be claimed while one is missing. Not thread-safe. O(1) per mark.
class BlockLedger {
 public:
  BlockLedger(int num_layers, int num_blocks);

  // True if the pair is in range.
  bool Contains(int layer, int block) const;
  // Marks a pair that Contains(). False if it was marked before; nothing changes then.
  bool Mark(int layer, int block);
  bool marked(int layer, int block) const { return bits_[Index(layer, block)]; }
  std::int64_t num_missing() const { return num_missing_; }
  std::int64_t num_marked() const { return static_cast<std::int64_t>(bits_.size()) - num_missing_; }
  bool complete() const { return num_missing_ == 0; }
  // The first unmarked (layer, block) in layer order; requires !complete(). O(pairs), for messages.
  std::pair<int, int> FirstMissing() const;
  int num_layers() const { return num_layers_; }
  int num_blocks() const { return num_blocks_; }

 private:
  std::size_t Index(int layer, int block) const {
    return static_cast<std::size_t>(layer) * num_blocks_ + block;
  }
  int num_layers_;
  int num_blocks_;
  std::int64_t num_missing_;
  std::vector<bool> bits_;
};

}  // namespace baton::kvtransfer
