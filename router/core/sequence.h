#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sampling_params.h"
#include "router/core/timeline.h"
#include "router/core/worker_registry.h"
#include "session/messages.h"

namespace baton::router {

using RequestKey = std::uint64_t;  // of one client call; never reused within the process

// New output tokens of one sequence, in order and without gaps.
struct NewTokens {
  std::span<const SampledToken> tokens;
  FinishReason finish = FinishReason::kNone;        // not kNone on the last call
  std::span<const SampledToken> prompt_logprobs{};  // with the first call only
};

// Where a sequence's tokens go. Called on the router core's thread; must not block nor call the
// dispatcher. After OnFailed, a finish, or a false from OnTokens nothing more is called.
class SequenceSink {
 public:
  virtual ~SequenceSink() = default;
  // False ends the sequence here and frees it on its workers: a stop string was found, or the
  // client is gone.
  virtual bool OnTokens(const NewTokens& tokens) = 0;
  virtual void OnFailed(const absl::Status& status) = 0;
};

// One sequence of a request, ready for the workers.
struct SequenceRequest {
  std::string request_id;  // the client call's; need not be unique
  std::int32_t index = 0;  // of the choice
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
  std::int32_t priority = 0;
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<SequenceSink> sink;
};

// What the dispatcher knows of an admitted sequence.
struct Sequence {
  enum class State : std::uint8_t {
    kReserving,   // Reserve sent; its ticket, or the first token of a local prefill, is awaited
    kPrefilling,  // Prefill sent; the first token is awaited
    kHandoff,     // first token given out; the decode worker's first output is awaited
    kDecoding,    // the decode worker's outputs arrive
  };

  RequestKey key = 0;
  SequenceRequest request;
  State state = State::kReserving;
  bool local_prefill = false;
  // The workers at work on it, 0 for none; `holds` says that one may still hold something for it.
  SessionId decode = 0;
  SessionId prefill = 0;
  bool decode_holds = false;
  bool prefill_holds = false;
  std::vector<SessionId> refused;  // workers that would not take it
  absl::Status last_refusal;
  absl::Duration lease;                                  // of its ticket
  absl::Time handoff_deadline = absl::InfiniteFuture();  // set when its prefill worker was lost
  std::int32_t next_position = 0;                        // output tokens given to the sink
  std::map<std::int32_t, session::TokenOutput> early;    // by first_position, beyond next_position
  SequenceRecord record;
};

}  // namespace baton::router
