#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sampling_params.h"
#include "common/transfer_ticket.h"

// What routers and workers say to each other on the session stream, as plain values. The worker
// dials the router and keeps the stream open; its first message is Hello; when the stream ends,
// every request that came over it is cancelled. Request ids are unique per stream.
namespace baton::session {

enum class WorkerRole : std::uint8_t { kPrefill, kDecode, kBoth };

// Where every KV block of a worker is; free + cached + reserved + active == total at all times.
struct BlockBooks {
  std::int32_t free = 0;
  std::int32_t cached = 0;    // unreferenced but kept for reuse
  std::int32_t reserved = 0;  // granted to a transfer that has not completed
  std::int32_t active = 0;    // held by a sequence being computed or handed over
  std::int32_t total = 0;
  bool operator==(const BlockBooks&) const = default;
};

struct WorkerLoad {
  BlockBooks blocks;
  std::int32_t running = 0;              // sequences in the batch
  std::int32_t waiting = 0;              // requests queued
  std::int32_t waiting_tokens = 0;       // prompt tokens not yet computed
  double prefill_tokens_per_second = 0;  // recent, 0 until known
  bool draining = false;                 // takes nothing new
  bool operator==(const WorkerLoad&) const = default;
};

// ---- worker to router

struct Hello {
  std::string worker_id;
  std::uint64_t incarnation = 0;
  WorkerRole role = WorkerRole::kBoth;
  ModelFingerprint fingerprint;
  std::string served_model;   // for logs
  std::string admin_address;  // host:port of its /metrics, or empty
  std::int32_t vocab_size = 0;
  std::int32_t max_context = 0;  // prompt + output tokens
  std::int32_t max_sequences = 0;
  std::int32_t num_blocks = 0;
  KvCut cut;
  bool operator==(const Hello&) const = default;
};

struct Heartbeat {
  WorkerLoad load;
  bool operator==(const Heartbeat&) const = default;
};

// The decode worker cannot reserve yet; it will answer by a TicketGranted or a RequestFailed.
struct ReserveQueued {
  std::string request_id;
  std::int32_t place = 0;  // requests before it
  bool operator==(const ReserveQueued&) const = default;
};

struct TicketGranted {
  std::string request_id;
  TransferTicket ticket;
  absl::Duration wait;  // from Reserve's arrival at the worker to the grant
  bool operator==(const TicketGranted&) const = default;
};

// When layer `layer`'s blocks were ready and when they went, from the start of the prompt's first
// step, on the prefill worker's clock; the last chunk's values.
struct LayerTiming {
  std::int32_t layer = 0;
  absl::Duration computed;
  absl::Duration sent;  // first byte given to the wire
  bool operator==(const LayerTiming&) const = default;
};

// How a request spent its time on one worker. Fields that a worker does not know stay zero.
struct PhaseTimes {
  absl::Duration prefill_queue;
  absl::Duration prefill_compute;
  absl::Duration
      exposed_transfer;  // from the first token's sampling until every block was acknowledged
  absl::Duration adopt;  // from the last block's arrival until the sequence is in a batch
  absl::Duration first_decode_step;
  std::int64_t transfer_bytes = 0;
  absl::Duration transfer_total;  // first byte given to the wire .. last acknowledgement
  std::vector<LayerTiming> layers;
  bool operator==(const PhaseTimes&) const = default;
};

// New tokens of one request. `first_position` is the index of tokens[0] in the request's output; a
// router puts outputs of two workers in order by it. `finish` is not kNone on the last of them.
struct TokenOutput {
  std::string request_id;
  std::int32_t first_position = 0;
  std::vector<SampledToken> tokens;
  FinishReason finish = FinishReason::kNone;
  std::vector<SampledToken>
      prompt_logprobs;  // with position 0 only; [prompt tokens - 1], for tokens 1..
  PhaseTimes times;     // with the first output of a worker, else zero
  bool operator==(const TokenOutput&) const = default;
};

// One message per engine step: every sequence's new tokens.
struct StepOutputs {
  std::vector<TokenOutput> outputs;
  bool operator==(const StepOutputs&) const = default;
};

// The prefill worker's account of a finished handoff; after its TokenOutput.
struct TransferReport {
  std::string request_id;
  PhaseTimes times;
  bool operator==(const TransferReport&) const = default;
};

// The request is over at this worker and holds nothing there. The status says what to do: see
// common/status.h.
struct RequestFailed {
  std::string request_id;
  absl::Status status;
  bool operator==(const RequestFailed&) const = default;
};

using WorkerMessage = std::variant<Hello, Heartbeat, ReserveQueued, TicketGranted, StepOutputs,
                                   TransferReport, RequestFailed>;

// ---- router to worker

// A request as workers see it: token ids and how to sample, no text. One sequence: a client's n > 1
// becomes n of these.
struct RequestSpec {
  std::string request_id;
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
  std::int32_t priority = 0;                            // lower goes first
  absl::Duration time_left = absl::InfiniteDuration();  // until the request's deadline
  bool operator==(const RequestSpec&) const = default;
};

// To a decode worker: hold room for the request. With `local_prefill` it also computes the prompt
// itself and no ticket is granted; else it answers with a ticket and waits for the transfer.
struct Reserve {
  RequestSpec spec;
  bool local_prefill = false;
  bool operator==(const Reserve&) const = default;
};

// To a prefill worker: compute the prompt, hand its KV over by the ticket, return the first token.
struct Prefill {
  RequestSpec spec;
  TransferTicket ticket;
  bool operator==(const Prefill&) const = default;
};

// Stop and free whatever the request holds. No answer is needed; outputs may still be under way.
struct Cancel {
  std::string request_id;
  bool operator==(const Cancel&) const = default;
};

// The router's answer to Hello.
struct Welcome {
  std::string router_id;
  absl::Duration heartbeat_interval;
  absl::Status
      refusal;  // not OK: the worker cannot serve here (fingerprint), and says so in its log
  bool operator==(const Welcome&) const = default;
};

using RouterMessage = std::variant<Welcome, Reserve, Prefill, Cancel>;

}  // namespace baton::session
