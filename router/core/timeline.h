#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "session/messages.h"

namespace baton::router {

// Where a sequence's time goes, from its arrival at the router to its last byte given out.
enum class Phase : std::uint8_t {
  kRouterQueue,      // parsing, template, tokenizing, waiting for the router core
  kReserveWait,      // from the reservation's sending to the ticket
  kPrefillQueue,     // in the prefill worker's queue
  kPrefillCompute,   // from the prompt's first step to its last
  kExposedTransfer,  // KV still on the wire after the first token was sampled
  kAdopt,            // from the last block's arrival until the sequence is in a decode batch
  kFirstDecodeStep,  // the step that gave the second token
  kDecode,           // all later steps
  kDetokenize,       // the router's own work on outputs: text, stop strings, writing
  kMessaging,        // the rest: messages under way, and waits that no worker reported
};
inline constexpr int kNumPhases = 10;
std::string_view PhaseName(Phase phase);  // "prefill_compute"

// The account of one sequence's time. Boundaries are instants of the router's clock; within them
// the workers' own reports say how to split, cut to what there is, and what remains is named
// kMessaging. So the phases add up to ended() - arrival() exactly, whatever a worker claims. Not
// thread-safe.
class Timeline {
 public:
  explicit Timeline(absl::Time arrival) : boundaries_{arrival} {}
  Timeline() : Timeline(absl::InfinitePast()) {}

  // The sequence's way through the cluster. Each ends the stage before it; stages may be left out
  // (local prefill has no ticket), and a time before the last boundary counts as that boundary.
  void Submitted(absl::Time now) { Advance(kReserve, now); }
  void TicketGranted(absl::Time now) { Advance(kPrefill, now); }
  void FirstToken(absl::Time now) { Advance(kHandoff, now); }
  void FirstDecodeOutput(absl::Time now) { Advance(kDecoding, now); }
  void LastToken(absl::Time now) { Advance(kTail, now); }
  void Ended(absl::Time now) { Advance(kOver, now); }

  // The prompt is computed by the decode worker: there is no handoff.
  void SetLocalPrefill() { local_prefill_ = true; }
  // Counts the router's own work on an output, inside the present stage.
  void AddDetokenize(absl::Duration spent) { detokenize_[stage_] += spent; }
  // Takes over what a worker knows; fields that are zero say nothing.
  void Report(const session::PhaseTimes& times);

  absl::Time arrival() const { return boundaries_[0]; }
  absl::Time ended() const { return boundaries_[kOver]; }
  bool has_ended() const { return stage_ == kOver; }
  const session::PhaseTimes& times() const { return times_; }

  // Indexed by Phase. Requires has_ended(). Their sum is ended() - arrival().
  std::array<absl::Duration, kNumPhases> Phases() const;

 private:
  enum Stage : int { kQueue, kReserve, kPrefill, kHandoff, kDecoding, kTail, kOver };

  void Advance(Stage stage, absl::Time now);

  Stage stage_ = kQueue;
  bool local_prefill_ = false;
  std::array<absl::Time, kOver + 1> boundaries_;  // [s] is when stage s began
  std::array<absl::Duration, kOver + 1> detokenize_{};
  session::PhaseTimes times_;
};

// One sequence of a request that is over, or one still running when asked for early.
struct SequenceRecord {
  std::string request_id;   // the client call's
  std::string sequence_id;  // as workers know it
  std::int32_t index = 0;   // of the choice
  std::string prefill_worker;
  std::string decode_worker;
  std::string outcome;  // "finished", "stopped", "cancelled", or the error's code
  std::string message;  // of the error
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_output_tokens = 0;
  absl::Time first_token;  // when it had left; infinite past if it never came
  absl::Time last_token;
  Timeline timeline;
};

}  // namespace baton::router
