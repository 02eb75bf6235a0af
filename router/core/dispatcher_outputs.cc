// The dispatcher's part for tickets, tokens and failures that workers report.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/core/dispatcher.h"

namespace baton::router {
namespace {

// Whether another worker may take what this one would not.
bool MayGoElsewhere(const absl::Status& status) {
  return status.code() != absl::StatusCode::kInvalidArgument &&
         status.code() != absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

void Dispatcher::Handle(SessionId session, session::TicketGranted& message) {
  Sequence* sequence = Find(message.request_id);
  if (sequence == nullptr || sequence->decode != session || sequence->local_prefill ||
      sequence->state != Sequence::State::kReserving) {
    return;  // cancelled meanwhile: the Cancel behind it frees the reservation
  }
  const absl::Time now = clock_.Now();
  sequence->record.timeline.TicketGranted(now);
  const PlacementQuery query{
      sequence->record.num_prompt_tokens,
      sequence->record.num_prompt_tokens + sequence->request.sampling.max_tokens};
  absl::StatusOr<SessionId> chosen =
      policy_.PlacePrefill(query, *registry_.Find(session), registry_);
  if (!chosen.ok()) return Fail(*sequence, chosen.status());

  sequence->state = Sequence::State::kPrefilling;
  sequence->prefill = *chosen;
  sequence->prefill_holds = true;
  sequence->lease = message.ticket.lease;
  sequence->record.prefill_worker = WorkerName(*chosen);
  if (Worker* worker = registry_.Find(*chosen)) {
    ++worker->num_sequences;
    worker->num_unanswered_tokens += sequence->record.num_prompt_tokens;
  }
  session::Prefill prefill;
  prefill.spec.request_id = sequence->record.sequence_id;
  prefill.spec.prompt = std::move(sequence->request.prompt);  // the last that needs it
  prefill.spec.sampling = sequence->request.sampling;
  prefill.spec.priority = sequence->request.priority;
  prefill.spec.time_left = sequence->request.deadline - now;
  prefill.ticket = std::move(message.ticket);
  outbox_.Send(*chosen, std::move(prefill));
}

void Dispatcher::Handle(SessionId session, session::StepOutputs& message) {
  for (session::TokenOutput& output : message.outputs) HandleOutput(session, output);
}

void Dispatcher::HandleOutput(SessionId session, session::TokenOutput& output) {
  Sequence* sequence = Find(output.request_id);
  if (sequence == nullptr) return;  // over; its workers were told
  if (session != sequence->decode && session != sequence->prefill) return;
  sequence->record.timeline.Report(output.times);
  if (session == sequence->decode && output.finish != FinishReason::kNone) {
    sequence->decode_holds = false;
  }
  Deliver(*sequence, std::move(output));
}

void Dispatcher::Deliver(Sequence& sequence, session::TokenOutput output) {
  if (output.first_position > sequence.next_position) {
    const std::int32_t position = output.first_position;
    sequence.early.emplace(position, std::move(output));
    return;
  }
  if (!DeliverInOrder(sequence, output)) return;
  while (!sequence.early.empty() && sequence.early.begin()->first <= sequence.next_position) {
    const session::TokenOutput next =
        std::move(sequence.early.extract(sequence.early.begin()).mapped());
    if (!DeliverInOrder(sequence, next)) return;
  }
}

bool Dispatcher::DeliverInOrder(Sequence& sequence, const session::TokenOutput& output) {
  // Both workers may report a token that changed hands; it is given out once.
  const std::size_t num_known = sequence.next_position - output.first_position;
  if (num_known > output.tokens.size()) return true;
  NewTokens news{std::span(output.tokens).subspan(num_known), output.finish};
  if (news.tokens.empty() && news.finish == FinishReason::kNone) return true;
  if (sequence.next_position == 0) news.prompt_logprobs = output.prompt_logprobs;

  const absl::Time now = clock_.Now();
  NoteProgress(sequence, news.tokens.size(), now);
  if (news.finish != FinishReason::kNone) sequence.record.timeline.LastToken(now);
  const std::shared_ptr<SequenceSink> sink = sequence.request.sink;
  const bool wants_more = sink->OnTokens(news);
  const absl::Time done = clock_.Now();
  sequence.record.timeline.AddDetokenize(done - now);
  if (!news.tokens.empty()) {
    if (sequence.record.first_token == absl::InfinitePast()) {
      sequence.record.first_token = done;
    } else {
      observer_.OnTokens(done - sequence.record.last_token, static_cast<int>(news.tokens.size()));
    }
    sequence.record.last_token = done;
  }
  if (news.finish != FinishReason::kNone) {
    End(sequence, Outcome::kFinished, absl::OkStatus());
    return false;
  }
  if (!wants_more) {
    sequence.record.timeline.LastToken(now);
    End(sequence, Outcome::kStopped, absl::OkStatus());
    return false;
  }
  return true;
}

void Dispatcher::NoteProgress(Sequence& sequence, std::size_t num_tokens, absl::Time now) {
  if (num_tokens == 0) return;
  Timeline& timeline = sequence.record.timeline;
  if (sequence.next_position == 0) {
    AnsweredFirstToken(sequence);
    --num_waiting_;
    timeline.FirstToken(now);
    sequence.state = Sequence::State::kHandoff;
    sequence.next_position = static_cast<std::int32_t>(num_tokens);
    if (!sequence.local_prefill && num_tokens == 1) return;
    sequence.state = Sequence::State::kDecoding;
    if (num_tokens > 1) timeline.FirstDecodeOutput(now);
    return;
  }
  timeline.FirstDecodeOutput(now);
  sequence.state = Sequence::State::kDecoding;
  sequence.handoff_deadline = absl::InfiniteFuture();
  sequence.next_position += static_cast<std::int32_t>(num_tokens);
}

void Dispatcher::Handle(SessionId session, session::TransferReport& message) {
  if (Sequence* sequence = Find(message.request_id)) {
    if (sequence->prefill != session) return;
    sequence->record.timeline.Report(message.times);
    sequence->prefill_holds = false;
    return;
  }
  const auto it = unsettled_.find(message.request_id);
  if (it == unsettled_.end() || it->second.prefill != session) return;
  it->second.record.timeline.Report(message.times);
  Settle(message.request_id);
}

void Dispatcher::Handle(SessionId session, session::RequestFailed& message) {
  Sequence* sequence = Find(message.request_id);
  if (sequence == nullptr) {
    if (unsettled_.contains(message.request_id)) Settle(message.request_id);
    return;
  }
  const absl::Status status = Annotate(
      message.status.ok() ? absl::InternalError("failed without a reason") : message.status,
      absl::StrCat("worker ", WorkerName(session)));
  if (session == sequence->decode) {
    sequence->decode_holds = false;
    HandleDecodeFailure(*sequence, status);
  } else if (session == sequence->prefill) {
    sequence->prefill_holds = false;
    HandlePrefillFailure(*sequence, status);
  }
}

void Dispatcher::HandleDecodeFailure(Sequence& sequence, const absl::Status& status) {
  if (sequence.state != Sequence::State::kReserving) return Fail(sequence, status);
  observer_.OnRefused(status);
  if (!MayGoElsewhere(status)) return Fail(sequence, status);
  PlaceElsewhere(sequence, status);
}

void Dispatcher::HandlePrefillFailure(Sequence& sequence, const absl::Status& status) {
  // Once the decode worker is at work it needs nothing more from the prefill worker.
  if (sequence.state == Sequence::State::kDecoding) return;
  Fail(sequence, status);
}

}  // namespace baton::router
