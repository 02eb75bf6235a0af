#pragma once
#include <string_view>

#include "absl/status/status.h"
#include "common/transfer_ticket.h"

namespace baton::kvtransfer {

// OK when KV of the two sides can be mixed; else kFailedPrecondition with both sides' names and
// every field that differs, so that the operator need not look further.
absl::Status CheckFingerprints(std::string_view sender_name, const ModelFingerprint& sender,
                               std::string_view receiver_name, const ModelFingerprint& receiver);

}  // namespace baton::kvtransfer
