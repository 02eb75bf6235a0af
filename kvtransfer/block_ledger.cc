#include "kvtransfer/block_ledger.h"

#include <utility>

#include "common/check.h"

namespace baton::kvtransfer {

BlockLedger::BlockLedger(std::vector<int> first_blocks, int num_blocks)
    : first_blocks_(std::move(first_blocks)),
      num_blocks_(num_blocks),
      bits_(first_blocks_.size() * static_cast<std::size_t>(num_blocks), false) {
  for (const int first : first_blocks_) num_pairs_ += num_blocks - first;
  num_missing_ = num_pairs_;
}

bool BlockLedger::Contains(int layer, int block) const {
  return layer >= 0 && layer < num_layers() && block >= first_blocks_[layer] && block < num_blocks_;
}

bool BlockLedger::Mark(int layer, int block) {
  BATON_CHECK(Contains(layer, block), "a pair outside the ledger was marked");
  const std::size_t index = Index(layer, block);
  if (bits_[index]) return false;
  bits_[index] = true;
  --num_missing_;
  return true;
}

std::pair<int, int> BlockLedger::FirstMissing() const {
  for (int layer = 0; layer < num_layers(); ++layer) {
    for (int block = first_blocks_[layer]; block < num_blocks_; ++block) {
      if (!marked(layer, block)) return {layer, block};
    }
  }
  BATON_CHECK(false, "nothing is missing from a complete ledger");
}

}  // namespace baton::kvtransfer
