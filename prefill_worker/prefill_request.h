#pragma once
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "common/sampling_params.h"
#include "common/transfer_ticket.h"
#include "engine/kv/block_allocator.h"
#include "session/messages.h"
#include "worker/events.h"

namespace baton::prefill_worker {

// What bounds a prefill worker; the pool's own size is the allocator's.
struct PrefillLimits {
  int max_sequences = 64;        // computed together in a step
  int max_batched_tokens = 512;  // rows of a step
  int max_waiting = 256;         // requests whose computation has not begun
  int max_context = 0;           // prompt + output tokens
  int vocab_size = 0;
  ModelFingerprint fingerprint;  // of this worker
  KvCut cut;                     // of this worker
};

enum class PrefillPhase : std::uint8_t {
  kWaiting,    // holds nothing
  kAdmitted,   // holds blocks and a transfer; its tokens are computed in the order of the queue
  kHandoff,    // all computed and the first token sent; the decode worker has yet to acknowledge
  kAbandoned,  // over for everyone; its blocks wait until the transfer lets go of them
};

// One prompt on its way through a prefill worker.
struct PrefillRequest {
  std::uint64_t number = 0;  // by arrival, unique in the process
  worker::RequestKey key;
  session::RequestSpec spec;
  TransferTicket ticket;
  absl::Time arrived;
  absl::Time deadline = absl::InfiniteFuture();

  PrefillPhase phase = PrefillPhase::kWaiting;
  engine::BlockList blocks;                           // all of the prompt's, from admission on
  std::uint64_t transfer = 0;                         // the sender's key, from admission on
  int num_computed = 0;                               // prompt tokens
  absl::Time compute_start = absl::InfiniteFuture();  // of the first step
  absl::Time compute_end = absl::InfiniteFuture();    // the first token was sampled
  SampledToken first_token;
  std::vector<SampledToken> prompt_logprobs;

  int num_tokens() const { return static_cast<int>(spec.prompt.size()); }
  bool started() const { return compute_start != absl::InfiniteFuture(); }
};

}  // namespace baton::prefill_worker
