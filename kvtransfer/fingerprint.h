#pragma once
#include <string_view>

#include "absl/status/status.h"
#include "common/transfer_ticket.h"

namespace baton::kvtransfer {

// One side of a link: what its KV is, and how it is cut.
struct KvSide {
  std::string_view name;  // of the worker, for messages
  const ModelFingerprint& fingerprint;
  const KvCut& cut;
};

// OK when KV of the two sides can be mixed; else kFailedPrecondition with both sides' names and
// every field that differs, so that the operator need not look further.
absl::Status CheckFingerprints(const KvSide& sender, const KvSide& receiver);

// OK when blocks of the one side can be made into blocks of the other; else kFailedPrecondition
// with both cuts.
absl::Status CheckCuts(const KvSide& sender, const KvSide& receiver);

// Both of them.
absl::Status CheckSides(const KvSide& sender, const KvSide& receiver);

}  // namespace baton::kvtransfer
