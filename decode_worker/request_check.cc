#include "decode_worker/request_check.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace baton::decode_worker {
namespace {

absl::Status CheckTokens(const session::RequestSpec& spec, int vocab_size) {
  const auto is_outside = [&](std::int32_t token) { return token < 0 || token >= vocab_size; };
  if (const auto bad = std::find_if(spec.prompt.begin(), spec.prompt.end(), is_outside);
      bad != spec.prompt.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prompt token outside the vocabulary: id %d at position %d, must be 0..%d",
                        *bad, bad - spec.prompt.begin(), vocab_size - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckFits(int prompt_tokens, const DecodeLimits& limits) {
  if (prompt_tokens + 1 > limits.max_context) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prompt too long: %d tokens and 1 of output, context %d; shorten it or "
                        "raise max-model-len",
                        prompt_tokens, limits.max_context));
  }
  if (limits.BlocksFor(prompt_tokens + 1) > limits.num_blocks) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prompt exceeds the KV pool: %d tokens need %d blocks, pool has %d; "
                        "shorten it or give the pool more memory",
                        prompt_tokens, limits.BlocksFor(prompt_tokens + 1), limits.num_blocks));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequest(const session::RequestSpec& spec, const DecodeLimits& limits) {
  if (spec.prompt.empty()) {
    return absl::InvalidArgumentError("prompt is empty: send at least one token");
  }
  if (spec.sampling.max_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "max_tokens out of range: %d, must be 1 or more", spec.sampling.max_tokens));
  }
  if (absl::Status fits = CheckFits(static_cast<int>(spec.prompt.size()), limits); !fits.ok()) {
    return fits;
  }
  return CheckTokens(spec, limits.vocab_size);
}

}  // namespace baton::decode_worker
