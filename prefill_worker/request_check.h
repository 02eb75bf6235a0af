#pragma once
#include "absl/status/status.h"
#include "prefill_worker/prefill_request.h"
#include "session/messages.h"

namespace baton::prefill_worker {

// Whether a request could ever be computed and handed over here, with `num_blocks` in the pool.
//   kInvalidArgument     the prompt or the ticket: names what, the value and the limit
//   kFailedPrecondition  the ticket is for another model, or for blocks that ours do not fit; names
//                        both sides
absl::Status CheckPrefill(const PrefillLimits& limits, int num_blocks,
                          const session::Prefill& prefill);

}  // namespace baton::prefill_worker
