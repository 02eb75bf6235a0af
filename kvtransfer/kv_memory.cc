#include <algorithm>

#include "kvtransfer/plan.h"
#include "kvtransfer/transfer.h"

namespace baton::kvtransfer {

bool KvMemory::Fits(const ModelFingerprint& fingerprint) const {
  if (ranks.empty() || ranks.size() > kMaxTensorParallelSize || block_size < 1 ||
      block_size > kMaxKvBlockSize || num_blocks < 1) {
    return false;
  }
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const std::size_t expected = BlockBytes(fingerprint, cut(), rank);
    if (expected == 0 || ranks[rank].block_bytes != expected ||
        ranks[rank].layers.size() != static_cast<std::size_t>(fingerprint.num_layers)) {
      return false;
    }
  }
  return true;
}

}  // namespace baton::kvtransfer
