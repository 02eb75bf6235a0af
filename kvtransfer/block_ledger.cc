#include "kvtransfer/block_ledger.h"

#include <algorithm>

#include "common/check.h"

namespace baton::kvtransfer {

BlockLedger::BlockLedger(int num_layers, int num_blocks)
    : num_layers_(num_layers),
      num_blocks_(num_blocks),
      num_missing_(static_cast<std::int64_t>(num_layers) * num_blocks),
      bits_(num_missing_, false) {}

bool BlockLedger::Contains(int layer, int block) const {
  return layer >= 0 && layer < num_layers_ && block >= 0 && block < num_blocks_;
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
  const auto it = std::find(bits_.begin(), bits_.end(), false);
  const auto index = static_cast<std::size_t>(it - bits_.begin());
  return {static_cast<int>(index / num_blocks_), static_cast<int>(index % num_blocks_)};
}

}  // namespace baton::kvtransfer
