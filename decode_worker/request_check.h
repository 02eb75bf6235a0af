#pragma once
#include "absl/status/status.h"
#include "decode_worker/decode_limits.h"
#include "session/messages.h"

namespace baton::decode_worker {

// Whether a request can ever be served within `limits`, whatever else is running.
//   kInvalidArgument  empty prompt, a token id outside the vocabulary, no output token wanted, or
//                     prompt and first output token exceed context or pool; names the sizes
absl::Status CheckRequest(const session::RequestSpec& spec, const DecodeLimits& limits);

}  // namespace baton::decode_worker
