#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "router/core/placement_policy.h"
#include "router/core/sequence.h"
#include "router/core/timeline.h"
#include "router/core/worker_registry.h"
#include "session/messages.h"

namespace baton::router {

// The router's way to its workers. Must not block, nor call back into the dispatcher.
class WorkerOutbox {
 public:
  virtual ~WorkerOutbox() = default;
  virtual void Send(SessionId session, session::RouterMessage message) = 0;
  virtual void Close(SessionId session) = 0;
};

// Told of what happens, for metrics, logs and the debug page. Must not block, nor call back.
class DispatchObserver {
 public:
  virtual ~DispatchObserver() = default;
  virtual void OnWorkerOpened(const Worker& worker) = 0;
  virtual void OnWorkerLost(const Worker& worker, std::string_view why) = 0;
  // `num_tokens` came together, `gap` after the sequence's token before; not for its first tokens.
  virtual void OnTokens(absl::Duration gap, int num_tokens) = 0;
  // A worker, or this router, would not take a sequence.
  virtual void OnRefused(const absl::Status& status) = 0;
  // Exactly once per admitted sequence.
  virtual void OnEnded(const SequenceRecord& record) = 0;
  // Exactly once after it, when the timeline is as complete as it will be: the prefill worker's
  // account of the handoff may come after the last token.
  virtual void OnSettled(const SequenceRecord& record) = 0;
};

struct DispatcherOptions {
  std::string router_id;
  // Of the checkpoint whose tokenizer this router uses; a worker of another model is refused. Empty
  // takes any.
  std::string model_fingerprint;
  int max_sequences = 1024;  // admitted and not over
  int max_waiting = 512;     // of these, without a first token yet
  absl::Duration heartbeat_interval = absl::Seconds(1);
  int max_missed_heartbeats = 3;
};

// The heart of the router: takes sequences, has a decode worker reserve room, gives prompt and
// ticket to a prefill worker, puts the tokens of both in order and hands them to the sequence's
// sink; cancels on both when the client goes, time is up or something breaks.
//
// Invariants: every admitted sequence ends exactly once (a finish reason, its sink's own wish,
// OnFailed, or a cancel), and then every worker that may still hold something for it has been told.
// A plain state machine driven by calls and the clock: not thread-safe, never blocks.
class Dispatcher {
 public:
  // The references must outlive the dispatcher.
  Dispatcher(DispatcherOptions options, const Clock& clock, PlacementPolicy& policy,
             WorkerOutbox& outbox, DispatchObserver& observer);

  // Admits all of a request's sequences or none; `key` is new. Sinks of refused ones are not
  // called.
  //   kResourceExhausted  too many at work or waiting; retry later
  //   kUnavailable        a kind of worker is missing, or the router drains; retry later
  //   kInvalidArgument    longer than any worker can hold
  absl::Status Submit(RequestKey key, std::vector<SequenceRequest> sequences);
  // Ends what is left of a request without calling its sinks.
  void Cancel(RequestKey key);

  void OnWorkerOpen(SessionId session, const session::Hello& hello);
  void OnWorkerMessage(SessionId session, session::WorkerMessage message);
  void OnWorkerClosed(SessionId session);

  // Ends what is overdue and drops silent workers; to be called every 100 ms or so.
  void Tick();
  // From now on nothing is admitted.
  void StartDraining() { draining_ = true; }
  // Ends everything with `status`.
  void FailAll(const absl::Status& status);

  bool draining() const { return draining_; }
  int num_sequences() const { return static_cast<int>(sequences_.size()); }
  int num_waiting() const { return num_waiting_; }
  const WorkerRegistry& registry() const { return registry_; }
  // When to retry what was refused for lack of room or workers: whole seconds, 1 to 30.
  absl::Duration RetryAfter() const;

 private:
  using Sequences = absl::flat_hash_map<std::string, std::unique_ptr<Sequence>>;
  enum class Outcome { kFinished, kStopped, kCancelled, kFailed };
  struct Unsettled {
    SequenceRecord record;
    SessionId prefill = 0;
    absl::Time deadline;
  };

  absl::Status Admit(const std::vector<SequenceRequest>& sequences) const;
  absl::Status Place(Sequence& sequence);
  // After a worker would not take it: tries the others, and fails with `refusal` if none is left.
  void PlaceElsewhere(Sequence& sequence, const absl::Status& refusal);
  void SendReserve(Sequence& sequence, const DecodePlacement& placement);

  void Handle(SessionId session, session::Hello& message);
  void Handle(SessionId session, session::Heartbeat& message);
  void Handle(SessionId session, session::ReserveQueued& message);
  void Handle(SessionId session, session::TicketGranted& message);
  void Handle(SessionId session, session::StepOutputs& message);
  void Handle(SessionId session, session::TransferReport& message);
  void Handle(SessionId session, session::RequestFailed& message);
  void HandleOutput(SessionId session, session::TokenOutput& output);
  void HandleDecodeFailure(Sequence& sequence, const absl::Status& status);
  void HandlePrefillFailure(Sequence& sequence, const absl::Status& status);

  // Gives the sink what is in order, once `output` is taken in. May end the sequence.
  void Deliver(Sequence& sequence, session::TokenOutput output);
  // False when the sequence is over (and gone).
  bool DeliverInOrder(Sequence& sequence, const session::TokenOutput& output);
  void NoteProgress(Sequence& sequence, std::size_t num_tokens, absl::Time now);

  void LoseWorker(SessionId session, std::string_view why);
  void Fail(Sequence& sequence, const absl::Status& status);
  // Tells the workers, the observer and the books; destroys the sequence.
  void End(Sequence& sequence, Outcome outcome, const absl::Status& status);
  void ReleaseDecode(Sequence& sequence);
  void ReleasePrefill(Sequence& sequence);
  void AnsweredFirstToken(Sequence& sequence);
  void Settle(const std::string& sequence_id);
  Sequence* Find(const std::string& sequence_id);
  std::string WorkerName(SessionId session) const;

  const DispatcherOptions options_;
  const Clock& clock_;
  PlacementPolicy& policy_;
  WorkerOutbox& outbox_;
  DispatchObserver& observer_;
  WorkerRegistry registry_;
  bool draining_ = false;
  int num_waiting_ = 0;
  std::uint64_t next_sequence_ = 1;
  Sequences sequences_;                                                 // by sequence id
  absl::flat_hash_map<RequestKey, std::vector<std::string>> requests_;  // their live sequences
  absl::flat_hash_map<std::string, Unsettled> unsettled_;  // over, a TransferReport is awaited
};

}  // namespace baton::router
