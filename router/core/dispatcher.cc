#include "router/core/dispatcher.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::router {
namespace {

// How long a TransferReport may come after the end of its sequence.
constexpr absl::Duration kReportPatience = absl::Seconds(2);
// Beyond a ticket's lease, within which the decode worker itself gives a lost transfer up.
constexpr absl::Duration kHandoffPatience = absl::Seconds(1);

// What a client may be told: a worker's other codes describe its own affairs.
absl::Status ForClient(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
      return status;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
      return absl::UnavailableError(status.message());
    default:
      return absl::InternalError(status.message());
  }
}

absl::string_view StateName(Sequence::State state) {
  switch (state) {
    case Sequence::State::kReserving:
      return "waiting for a decode worker";
    case Sequence::State::kPrefilling:
      return "waiting for the first token";
    case Sequence::State::kHandoff:
      return "handing over to the decode worker";
    case Sequence::State::kDecoding:
      return "decoding";
  }
  return "unknown";
}

}  // namespace

Dispatcher::Dispatcher(DispatcherOptions options, const Clock& clock, PlacementPolicy& policy,
                       WorkerOutbox& outbox, DispatchObserver& observer)
    : options_(std::move(options)),
      clock_(clock),
      policy_(policy),
      outbox_(outbox),
      observer_(observer),
      registry_(options_.heartbeat_interval * options_.max_missed_heartbeats) {}

// ---- admission and placement

absl::Status Dispatcher::Submit(RequestKey key, std::vector<SequenceRequest> sequences) {
  if (absl::Status status = Admit(sequences); !status.ok()) {
    observer_.OnRefused(status);
    return status;
  }
  std::vector<std::string> ids;
  for (SequenceRequest& request : sequences) {
    auto sequence = std::make_unique<Sequence>();
    sequence->key = key;
    SequenceRecord& record = sequence->record;
    record.request_id = request.request_id;
    // Never used twice, so that late messages about a cancelled one cannot be mistaken.
    record.sequence_id = absl::StrCat(request.request_id, "/", absl::Hex(next_sequence_++));
    record.index = request.index;
    record.num_prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
    record.first_token = record.last_token = absl::InfinitePast();
    record.timeline = Timeline(request.arrival);
    sequence->request = std::move(request);
    ids.push_back(record.sequence_id);
    sequences_.emplace(record.sequence_id, std::move(sequence));
    ++num_waiting_;
  }
  requests_[key] = ids;
  for (const std::string& id : ids) {
    Sequence* sequence = Find(id);
    if (sequence == nullptr) continue;
    if (absl::Status status = Place(*sequence); !status.ok()) Fail(*sequence, status);
  }
  return absl::OkStatus();
}

absl::Status Dispatcher::Admit(const std::vector<SequenceRequest>& sequences) const {
  const int count = static_cast<int>(sequences.size());
  if (draining_) return absl::UnavailableError("the router is shutting down; retry elsewhere");
  if (num_sequences() + count > options_.max_sequences) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("too many requests at work: %d and %d more, limit %d; retry later",
                        num_sequences(), count, options_.max_sequences));
  }
  if (num_waiting_ + count > options_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("too many requests waiting: %d and %d more, limit %d; retry later",
                        num_waiting_, count, options_.max_waiting));
  }
  for (const SequenceRequest& request : sequences) {
    const auto num_prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
    const PlacementQuery query{num_prompt_tokens, num_prompt_tokens + request.sampling.max_tokens};
    BATON_RETURN_IF_ERROR(policy_.PlaceDecode(query, registry_).status());
  }
  return absl::OkStatus();
}

absl::Status Dispatcher::Place(Sequence& sequence) {
  const std::int32_t num_prompt_tokens = sequence.record.num_prompt_tokens;
  const PlacementQuery query{num_prompt_tokens,
                             num_prompt_tokens + sequence.request.sampling.max_tokens,
                             sequence.refused};
  absl::StatusOr<DecodePlacement> placement = policy_.PlaceDecode(query, registry_);
  if (!placement.ok()) {
    return sequence.last_refusal.ok() ? placement.status() : sequence.last_refusal;
  }
  SendReserve(sequence, *placement);
  return absl::OkStatus();
}

void Dispatcher::PlaceElsewhere(Sequence& sequence, const absl::Status& refusal) {
  sequence.refused.push_back(sequence.decode);
  sequence.last_refusal = refusal;
  ReleaseDecode(sequence);
  if (absl::Status placed = Place(sequence); !placed.ok()) Fail(sequence, placed);
}

void Dispatcher::SendReserve(Sequence& sequence, const DecodePlacement& placement) {
  const absl::Time now = clock_.Now();
  sequence.state = Sequence::State::kReserving;
  sequence.local_prefill = placement.local_prefill;
  sequence.decode = placement.session;
  sequence.decode_holds = true;
  sequence.record.decode_worker = WorkerName(placement.session);
  sequence.record.timeline.Submitted(now);
  if (placement.local_prefill) {
    sequence.record.timeline.SetLocalPrefill();
    sequence.record.prefill_worker = sequence.record.decode_worker;
  }
  if (Worker* worker = registry_.Find(placement.session)) ++worker->num_sequences;
  session::Reserve message;
  message.spec.request_id = sequence.record.sequence_id;
  message.spec.prompt = sequence.request.prompt;
  message.spec.sampling = sequence.request.sampling;
  message.spec.priority = sequence.request.priority;
  message.spec.time_left = sequence.request.deadline - now;
  message.local_prefill = placement.local_prefill;
  outbox_.Send(placement.session, std::move(message));
}

absl::Duration Dispatcher::RetryAfter() const {
  double rate = 0;
  std::int64_t num_tokens = 0;
  for (const auto& [session, worker] : registry_.workers()) {
    rate += worker.load.prefill_tokens_per_second;
    num_tokens += std::max<std::int64_t>(worker.load.waiting_tokens, worker.num_unanswered_tokens);
  }
  const double seconds = rate > 0 ? std::ceil(static_cast<double>(num_tokens) / rate) : 1;
  return absl::Seconds(std::clamp(seconds, 1.0, 30.0));
}

// ---- workers

void Dispatcher::OnWorkerOpen(SessionId session, const session::Hello& hello) {
  session::Welcome welcome{options_.router_id, options_.heartbeat_interval, absl::OkStatus()};
  if (!options_.model_fingerprint.empty() &&
      hello.fingerprint.model != options_.model_fingerprint) {
    welcome.refusal = absl::FailedPreconditionError(
        absl::StrCat("model differs: worker ", hello.worker_id, " serves ", hello.fingerprint.model,
                     ", router ", options_.router_id, " serves ", options_.model_fingerprint,
                     "; start both with the same --model"));
    observer_.OnRefused(welcome.refusal);
    outbox_.Send(session, std::move(welcome));
    return;  // unregistered: its messages are ignored
  }
  const std::optional<SessionId> replaced = registry_.Add(session, hello, clock_.Now());
  if (replaced.has_value()) {
    LoseWorker(*replaced, "it registered again");
    outbox_.Close(*replaced);
  }
  observer_.OnWorkerOpened(*registry_.Find(session));
  outbox_.Send(session, std::move(welcome));
}

void Dispatcher::OnWorkerMessage(SessionId session, session::WorkerMessage message) {
  if (registry_.Find(session) == nullptr) return;  // refused, lost or replaced
  registry_.Heard(session, clock_.Now());
  std::visit([&](auto& content) { Handle(session, content); }, message);
}

void Dispatcher::OnWorkerClosed(SessionId session) { LoseWorker(session, "its session ended"); }

void Dispatcher::Handle(SessionId, session::Hello&) {}  // only the first counts

void Dispatcher::Handle(SessionId session, session::Heartbeat& message) {
  registry_.Heard(session, message.load, clock_.Now());
}

void Dispatcher::Handle(SessionId, session::ReserveQueued&) {}  // nothing to do but wait

void Dispatcher::LoseWorker(SessionId session, std::string_view why) {
  const Worker* worker = registry_.Find(session);
  if (worker == nullptr) return;
  const std::string name = worker->hello.worker_id;
  observer_.OnWorkerLost(*worker, why);
  registry_.Remove(session);
  std::vector<std::string> touched;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->decode == session || sequence->prefill == session) touched.push_back(id);
  }
  for (const std::string& id : touched) {
    Sequence* sequence = Find(id);
    if (sequence == nullptr) continue;
    const absl::Status lost = absl::UnavailableError(absl::StrCat(
        "worker ", name, " was lost while ", StateName(sequence->state), "; retry the request"));
    if (sequence->decode == session) {
      sequence->decode_holds = false;
      if (sequence->state == Sequence::State::kReserving) {
        PlaceElsewhere(*sequence, lost);  // nothing has come of it yet
      } else {
        Fail(*sequence, lost);
      }
      continue;
    }
    sequence->prefill_holds = false;
    if (sequence->state == Sequence::State::kPrefilling) {
      Fail(*sequence, lost);
    } else if (sequence->state == Sequence::State::kHandoff) {
      // The decode worker may have every block already; it knows, and says so within the lease.
      sequence->handoff_deadline = clock_.Now() + sequence->lease + kHandoffPatience;
    }
  }
  std::vector<std::string> settled;
  for (const auto& [id, unsettled] : unsettled_) {
    if (unsettled.prefill == session) settled.push_back(id);
  }
  for (const std::string& id : settled) Settle(id);
}

// ---- ends

void Dispatcher::Cancel(RequestKey key) {
  const auto it = requests_.find(key);
  if (it == requests_.end()) return;
  const std::vector<std::string> ids = it->second;
  for (const std::string& id : ids) {
    if (Sequence* sequence = Find(id)) {
      End(*sequence, Outcome::kCancelled, absl::CancelledError("cancelled by the client"));
    }
  }
}

void Dispatcher::FailAll(const absl::Status& status) {
  std::vector<std::string> ids;
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  for (const std::string& id : ids) {
    if (Sequence* sequence = Find(id)) Fail(*sequence, status);
  }
}

void Dispatcher::Tick() {
  const absl::Time now = clock_.Now();
  for (const SessionId session : registry_.FindSilent(now)) {
    LoseWorker(session, "its heartbeats stopped");
    outbox_.Close(session);
  }
  std::vector<std::string> overdue;
  for (const auto& [id, sequence] : sequences_) {
    if (now >= std::min(sequence->request.deadline, sequence->handoff_deadline)) {
      overdue.push_back(id);
    }
  }
  for (const std::string& id : overdue) {
    Sequence* sequence = Find(id);
    if (sequence == nullptr) continue;
    if (now >= sequence->request.deadline) {
      Fail(*sequence,
           absl::DeadlineExceededError(absl::StrCat(
               "request timed out after ", absl::FormatDuration(now - sequence->request.arrival),
               " while ", StateName(sequence->state), "; raise its timeout or retry later")));
    } else {
      Fail(*sequence,
           absl::UnavailableError(absl::StrCat("worker ", sequence->record.prefill_worker,
                                               " was lost during the handoff; retry the request")));
    }
  }
  std::vector<std::string> settled;
  for (const auto& [id, unsettled] : unsettled_) {
    if (now >= unsettled.deadline) settled.push_back(id);
  }
  for (const std::string& id : settled) Settle(id);
}

void Dispatcher::Fail(Sequence& sequence, const absl::Status& status) {
  const std::shared_ptr<SequenceSink> sink = sequence.request.sink;
  const absl::Status for_client = ForClient(status);
  End(sequence, Outcome::kFailed, for_client);
  sink->OnFailed(for_client);
}

void Dispatcher::End(Sequence& sequence, Outcome outcome, const absl::Status& status) {
  const auto node = sequences_.extract(sequence.record.sequence_id);
  const bool finished = outcome == Outcome::kFinished || outcome == Outcome::kStopped;
  // Once the decode worker is at work the handoff is over but for the prefill worker's account.
  const bool awaits_report =
      finished && sequence.prefill_holds && sequence.state == Sequence::State::kDecoding;
  const SessionId prefill = sequence.prefill;
  const std::string& id = sequence.record.sequence_id;
  if (sequence.decode_holds) outbox_.Send(sequence.decode, session::Cancel{id});
  if (sequence.prefill_holds && !awaits_report) {
    outbox_.Send(sequence.prefill, session::Cancel{id});
  }
  if (sequence.next_position == 0) --num_waiting_;
  AnsweredFirstToken(sequence);
  ReleaseDecode(sequence);
  ReleasePrefill(sequence);

  const auto request = requests_.find(sequence.key);
  if (request != requests_.end()) {
    std::erase(request->second, id);
    if (request->second.empty()) requests_.erase(request);
  }
  SequenceRecord& record = sequence.record;
  record.timeline.Ended(clock_.Now());
  record.num_output_tokens = sequence.next_position;
  switch (outcome) {
    case Outcome::kFinished:
      record.outcome = "finished";
      break;
    case Outcome::kStopped:
      record.outcome = "stopped";
      break;
    case Outcome::kCancelled:
      record.outcome = "cancelled";
      break;
    case Outcome::kFailed:
      record.outcome = absl::StatusCodeToString(status.code());
      break;
  }
  if (!status.ok()) record.message = std::string(status.message());
  observer_.OnEnded(record);
  if (awaits_report) {
    const std::string key = id;
    unsettled_[key] = {std::move(record), prefill, clock_.Now() + kReportPatience};
  } else {
    observer_.OnSettled(record);
  }
}

void Dispatcher::ReleaseDecode(Sequence& sequence) {
  if (sequence.decode == 0) return;
  if (Worker* worker = registry_.Find(sequence.decode)) --worker->num_sequences;
  sequence.decode = 0;
  sequence.decode_holds = false;
}

void Dispatcher::ReleasePrefill(Sequence& sequence) {
  if (sequence.prefill == 0) return;
  if (Worker* worker = registry_.Find(sequence.prefill)) --worker->num_sequences;
  sequence.prefill = 0;
  sequence.prefill_holds = false;
}

void Dispatcher::AnsweredFirstToken(Sequence& sequence) {
  if (sequence.next_position != 0 || sequence.prefill == 0) return;
  if (Worker* worker = registry_.Find(sequence.prefill)) {
    worker->num_unanswered_tokens -= sequence.record.num_prompt_tokens;
  }
}

void Dispatcher::Settle(const std::string& sequence_id) {
  const auto node = unsettled_.extract(sequence_id);
  if (!node.empty()) observer_.OnSettled(node.mapped().record);
}

Sequence* Dispatcher::Find(const std::string& sequence_id) {
  const auto it = sequences_.find(sequence_id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

std::string Dispatcher::WorkerName(SessionId session) const {
  const Worker* worker = registry_.Find(session);
  return worker == nullptr ? absl::StrCat("session ", session) : worker->hello.worker_id;
}

}  // namespace baton::router
