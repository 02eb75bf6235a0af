#include "kvtransfer/block_ledger.h"

#include "common/check.h"

namespace baton::kvtransfer {

BlockLedger::BlockLedger(const TransferShape& shape)
    : first_blocks_(shape.first_blocks), num_blocks_(shape.num_blocks) {
  int num_senders = 0;
  for (const bool sends : shape.sends) sender_index_.push_back(sends ? num_senders++ : -1);
  for (const int first : first_blocks_) {
    num_expected_ += std::int64_t{num_senders} * (num_blocks_ - first);
  }
  bits_.assign(num_senders * first_blocks_.size() * static_cast<std::size_t>(num_blocks_), false);
}

bool BlockLedger::Contains(const SourceBlock& at) const {
  return at.rank >= 0 && at.rank < static_cast<int>(sender_index_.size()) &&
         sender_index_[at.rank] >= 0 && at.layer >= 0 && at.layer < num_layers() &&
         at.block >= first_blocks_[at.layer] && at.block < num_blocks_;
}

bool BlockLedger::Mark(const SourceBlock& at) {
  BATON_CHECK(Contains(at), "a block outside the ledger was marked");
  const std::size_t index = Index(at);
  if (bits_[index]) return false;
  bits_[index] = true;
  ++num_marked_;
  return true;
}

SourceBlock BlockLedger::FirstMissing() const {
  for (int rank = 0; rank < static_cast<int>(sender_index_.size()); ++rank) {
    if (sender_index_[rank] < 0) continue;
    for (int layer = 0; layer < num_layers(); ++layer) {
      for (int block = first_blocks_[layer]; block < num_blocks_; ++block) {
        const SourceBlock at{.rank = rank, .layer = layer, .block = block};
        if (!marked(at)) return at;
      }
    }
  }
  BATON_CHECK(false, "nothing is missing from a complete ledger");
}

}  // namespace baton::kvtransfer
