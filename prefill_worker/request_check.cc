#include "prefill_worker/request_check.h"

#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace baton::prefill_worker {
namespace {

std::string Describe(const ModelFingerprint& fingerprint) {
  return absl::StrFormat(
      "%s/%s/%s layers=%d kv_heads=%d head_dim=%d windows=%s", fingerprint.model,
      fingerprint.compute, fingerprint.kv_dtype, fingerprint.num_layers, fingerprint.num_kv_heads,
      fingerprint.head_dim,
      fingerprint.windows.empty() ? "none" : absl::StrJoin(fingerprint.windows, ","));
}

absl::Status CheckPrompt(const PrefillLimits& limits, int num_blocks,
                         const session::RequestSpec& spec) {
  const int num_tokens = static_cast<int>(spec.prompt.size());
  if (num_tokens == 0) return absl::InvalidArgumentError("empty prompt");
  if (num_tokens >= limits.max_context) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prompt too long: %d tokens leave no room for output in a context of %d",
                        num_tokens, limits.max_context));
  }
  const int needed = limits.cut.BlocksFor(num_tokens);
  if (needed > num_blocks) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "prompt never fits: %d tokens need %d KV blocks, the prefill worker has %d; raise "
        "kv-memory",
        num_tokens, needed, num_blocks));
  }
  for (const std::int32_t token : spec.prompt) {
    if (token < 0 || token >= limits.vocab_size) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "prompt token outside the vocabulary: %d, must be 0..%d", token, limits.vocab_size - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPrefill(const PrefillLimits& limits, int num_blocks,
                          const session::Prefill& prefill) {
  BATON_RETURN_IF_ERROR(CheckPrompt(limits, num_blocks, prefill.spec));
  const TransferTicket& ticket = prefill.ticket;
  if (ticket.fingerprint != limits.fingerprint) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "model fingerprints differ: prefill worker %s, decode worker %s (%s)",
        Describe(limits.fingerprint), ticket.worker_id, Describe(ticket.fingerprint)));
  }
  const int num_tokens = static_cast<int>(prefill.spec.prompt.size());
  if (!CutsFit(limits.cut, ticket.cut)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "KV block sizes do not fit: %d tokens at the prefill worker, %d at decode worker %s; make "
        "one a multiple of the other",
        limits.cut.block_size, ticket.cut.block_size, ticket.worker_id));
  }
  const int num_blocks_needed = ticket.cut.BlocksFor(num_tokens);
  if (ticket.num_tokens != num_tokens ||
      static_cast<int>(ticket.blocks.size()) != num_blocks_needed) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "ticket does not fit the prompt: it takes %d tokens in %d blocks, the prompt has %d in %d",
        ticket.num_tokens, ticket.blocks.size(), num_tokens, num_blocks_needed));
  }
  return absl::OkStatus();
}

}  // namespace baton::prefill_worker
