#include "decode_worker/decode_scheduler.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status.h"
#include "decode_worker/block_books.h"
#include "decode_worker/request_check.h"

namespace baton::decode_worker {

DecodeScheduler::DecodeScheduler(const DecodeLimits& limits, const Parts& parts)
    : limits_(limits), parts_(parts), planner_(limits_, table_, *parts.allocator) {
  BATON_CHECK(limits_.num_blocks == parts_.allocator->num_blocks(), "limits of another pool");
}

DecodeScheduler::~DecodeScheduler() {
  while (table_.size() > 0) {
    End(**table_.all().begin(), absl::CancelledError("worker is shutting down"));
  }
}

void DecodeScheduler::Handle(worker::Event event) {
  std::visit([this](auto&& alternative) { On(std::move(alternative)); }, std::move(event));
  Admit();
}

// ---- requests coming in

void DecodeScheduler::On(worker::RouterEvent event) {
  if (auto* reserve = std::get_if<session::Reserve>(&event.message)) {
    worker::RequestKey key{event.from, reserve->spec.request_id};
    OnReserve(std::move(key), std::move(*reserve), event.arrived);
  } else if (const auto* cancel = std::get_if<session::Cancel>(&event.message)) {
    OnCancel({event.from, cancel->request_id});
  } else if (const auto* prefill = std::get_if<session::Prefill>(&event.message)) {
    const absl::Status refusal = absl::FailedPreconditionError(
        "decode worker takes no Prefill: reserve here, and prefill on a prefill worker");
    parts_.observer->OnRefused(prefill->spec, RefusalReason::kInvalid, refusal);
    parts_.outbox->Send(event.from, session::RequestFailed{prefill->spec.request_id, refusal});
  }
}

void DecodeScheduler::OnReserve(worker::RequestKey key, session::Reserve reserve,
                                absl::Time arrived) {
  RefusalReason reason = RefusalReason::kInvalid;
  if (absl::Status status = CheckReserve(key, reserve, reason); !status.ok()) {
    parts_.observer->OnRefused(reserve.spec, reason, status);
    parts_.outbox->Send(key.session, session::RequestFailed{key.request_id, std::move(status)});
    return;
  }
  Sequence& sequence = table_.Add(MakeSequence(std::move(key), std::move(reserve), arrived));
  parts_.observer->OnPhase(sequence, arrived);
  Admit();
  if (sequence.state != SequenceState::kWaiting) return;
  parts_.outbox->Send(sequence.key.session,
                      session::ReserveQueued{sequence.key.request_id, PlaceOf(sequence)});
}

absl::Status DecodeScheduler::CheckReserve(const worker::RequestKey& key,
                                           const session::Reserve& reserve, RefusalReason& reason) {
  if (Sequence* known = table_.Find(key); known != nullptr) {
    // The answer says that the request holds nothing here, so that must become true.
    const absl::Status twice = absl::InvalidArgumentError(absl::StrFormat(
        "request id used twice on one session: %s; both requests are ended", key.request_id));
    End(*known, twice);
    return twice;
  }
  if (draining_) {
    reason = RefusalReason::kDraining;
    return absl::UnavailableError("worker is draining: it takes no new requests; use another one");
  }
  if (!reserve.local_prefill && parts_.receiver == nullptr) {
    reason = RefusalReason::kNoTransfers;
    return absl::FailedPreconditionError(
        "worker takes no KV transfers: its role is both; ask it for local prefill");
  }
  BATON_RETURN_IF_ERROR(CheckRequest(reserve.spec, limits_));
  const int waiting = static_cast<int>(table_.in(SequenceState::kWaiting).size());
  if (waiting >= limits_.max_waiting) {
    reason = RefusalReason::kQueueFull;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "decode queue is full: %d requests wait for KV blocks, limit %d; retry later", waiting,
        limits_.max_waiting));
  }
  return absl::OkStatus();
}

std::unique_ptr<Sequence> DecodeScheduler::MakeSequence(worker::RequestKey key,
                                                        session::Reserve reserve,
                                                        absl::Time arrived) {
  auto sequence = std::make_unique<Sequence>();
  sequence->key = std::move(key);
  sequence->sampling = std::move(reserve.spec.sampling);
  sequence->priority = reserve.spec.priority;
  sequence->arrival_number = next_arrival_++;
  sequence->arrived = arrived;
  sequence->deadline = arrived + reserve.spec.time_left;
  sequence->expires = std::min(sequence->deadline, arrived + limits_.max_queue_wait);
  sequence->local_prefill = reserve.local_prefill;
  sequence->needs_transfer = !reserve.local_prefill;
  sequence->prompt_size = static_cast<int>(reserve.spec.prompt.size());
  sequence->tokens = std::move(reserve.spec.prompt);
  return sequence;
}

int DecodeScheduler::PlaceOf(Sequence& sequence) const {
  const RankedSet& waiting = table_.in(SequenceState::kWaiting);
  return static_cast<int>(std::distance(waiting.begin(), waiting.find(&sequence)));
}

// ---- admission

void DecodeScheduler::Admit() {
  // A stalled sequence has the first claim on whatever becomes free; the next plan sees to it.
  for (const Sequence* sequence : table_.in(SequenceState::kReady)) {
    if (sequence->stalled) return;
  }
  while (!table_.in(SequenceState::kWaiting).empty()) {
    if (!AdmitOne(**table_.in(SequenceState::kWaiting).begin())) return;
  }
}

bool DecodeScheduler::AdmitOne(Sequence& sequence) {
  // A transfer brings what the rows after the prompt see; whoever computes here starts at token 0.
  const int num_holes =
      sequence.needs_transfer ? limits_.FirstVisibleBlock(sequence.prompt_size) : 0;
  // Room for all that is known and the next token, so that whoever is admitted gets on.
  const int num_blocks = limits_.BlocksFor(sequence.num_tokens() + 1) - num_holes;
  if (!HasRoomFor(sequence, num_blocks)) return false;
  absl::StatusOr<engine::BlockList> blocks = parts_.allocator->Allocate(num_blocks);
  if (!blocks.ok()) return false;
  sequence.blocks = *std::move(blocks);
  sequence.blocks.PrependHoles(num_holes);
  table_.SetExpiry(sequence, sequence.deadline);
  if (sequence.needs_transfer) {
    GrantTicket(sequence);
  } else {
    table_.MoveTo(sequence, SequenceState::kReady);
    if (sequence.preemptions == 0) EnterPhase(sequence, Phase::kReady, parts_.clock->Now());
  }
  return true;
}

bool DecodeScheduler::HasRoomFor(const Sequence& sequence, int num_blocks) const {
  const int running = static_cast<int>(table_.in(SequenceState::kRunning).size());
  const int ready = static_cast<int>(table_.in(SequenceState::kReady).size());
  const int receiving = static_cast<int>(table_.in(SequenceState::kReceiving).size());
  if (running + ready + receiving >= limits_.admitted()) return false;
  // One that needs no transfer would only sit on its blocks without a place.
  if (!sequence.needs_transfer && running + ready >= limits_.batch_places()) return false;
  // Every sequence in the batch can grow by a block before the newcomer costs anyone its blocks.
  return parts_.allocator->num_free() >= num_blocks + running;
}

void DecodeScheduler::GrantTicket(Sequence& sequence) {
  const std::vector<engine::BlockId>& held = sequence.blocks.ids();
  std::vector<std::int32_t> prompt_blocks(held.begin(),
                                          held.begin() + limits_.BlocksFor(sequence.prompt_size));
  TransferTicket ticket = parts_.receiver->Reserve(std::move(prompt_blocks), sequence.prompt_size);
  table_.MoveToReceiving(sequence, ticket.transfer_id);
  const absl::Time now = parts_.clock->Now();
  EnterPhase(sequence, Phase::kReceiving, now);
  parts_.outbox->Send(
      sequence.key.session,
      session::TicketGranted{sequence.key.request_id, std::move(ticket), now - sequence.arrived});
}

// ---- the handoff's end

void DecodeScheduler::On(const worker::ReceiveDone& event) {
  // Null when the request ended while this was on its way.
  if (Sequence* sequence = table_.FindTransfer(event.transfer_id)) Adopt(*sequence, event);
}

void DecodeScheduler::Adopt(Sequence& sequence, const worker::ReceiveDone& event) {
  // Nothing writes to the blocks any more, so from here End need not silence anybody.
  table_.MoveTo(sequence, SequenceState::kReady);
  EnterPhase(sequence, Phase::kReady, event.report.completed);
  if (event.record.finish != FinishReason::kNone) {
    End(sequence, absl::OkStatus());  // the prefill worker has told the router
    return;
  }
  const std::int32_t token = event.record.first_token.token;
  if (token < 0 || token >= limits_.vocab_size) {
    Fail(sequence, absl::InternalError(absl::StrFormat(
                       "first token of the handoff is outside the vocabulary: id %d, must be "
                       "0..%d",
                       token, limits_.vocab_size - 1)));
    return;
  }
  sequence.needs_transfer = false;
  sequence.num_computed = sequence.prompt_size;
  sequence.tokens.push_back(token);
  sequence.received = event.report.completed;
  // The prefill worker may know a longer context than ours; then there is nothing left to say.
  const FinishReason finish = engine::CheckFinish(sequence.sampling, sequence.prompt_size,
                                                  sequence.output(), limits_.context());
  if (finish == FinishReason::kNone) return;
  session::TokenOutput output;
  output.request_id = sequence.key.request_id;
  output.first_position = 1;
  output.finish = finish;
  outputs_.Add(sequence.key.session, std::move(output));
  outputs_.Flush(*parts_.outbox);
  End(sequence, absl::OkStatus());
}

void DecodeScheduler::On(const worker::ReceiveFailed& event) {
  Sequence* sequence = table_.FindTransfer(event.transfer_id);
  if (sequence == nullptr) return;
  table_.MoveTo(*sequence, SequenceState::kReady);  // as in Adopt: nobody writes any more
  Fail(*sequence, absl::UnavailableError(
                      absl::StrFormat("KV handoff failed: %s; the request can be sent again",
                                      std::string(event.status.message()))));
}

// ---- ends

void DecodeScheduler::OnCancel(const worker::RequestKey& key) {
  if (Sequence* sequence = table_.Find(key)) {
    End(*sequence, absl::CancelledError("cancelled by the router"));
  }
}

void DecodeScheduler::On(const worker::SessionLost& event) {
  for (Sequence* sequence : table_.OfSession(event.session)) {
    End(*sequence, absl::CancelledError("the router's session ended"));
  }
}

void DecodeScheduler::On(const worker::EndAll& event) {
  while (table_.size() > 0) Fail(**table_.all().begin(), event.why);
}

void DecodeScheduler::End(Sequence& sequence, const absl::Status& why) {
  if (sequence.state == SequenceState::kReceiving) parts_.receiver->Release(sequence.transfer_id);
  parts_.observer->OnEnd(sequence, why, parts_.clock->Now());
  table_.Remove(sequence);
}

void DecodeScheduler::Fail(Sequence& sequence, absl::Status status) {
  const worker::SessionKey session = sequence.key.session;
  session::RequestFailed failed{sequence.key.request_id, std::move(status)};
  End(sequence, failed.status);
  parts_.outbox->Send(session, std::move(failed));
}

void DecodeScheduler::Tick() {
  const absl::Time now = parts_.clock->Now();
  while (Sequence* sequence = table_.FirstExpired(now)) {
    const double waited = absl::ToDoubleSeconds(now - sequence->arrived);
    if (sequence->expires == sequence->deadline) {
      Fail(*sequence, absl::DeadlineExceededError(absl::StrFormat(
                          "request deadline passed: %.1f s on the decode worker", waited)));
    } else {
      Fail(*sequence, absl::ResourceExhaustedError(absl::StrFormat(
                          "no KV blocks became free in time: waited %.1f s, limit %.1f s; retry "
                          "later",
                          waited, absl::ToDoubleSeconds(limits_.max_queue_wait))));
    }
  }
  Admit();
}

// ---- steps

std::span<const engine::SequenceStep> DecodeScheduler::PlanStep() {
  StepPlan plan = planner_.Plan();
  step_start_ = parts_.clock->Now();
  for (Sequence* sequence : plan.preempted) EnterPhase(*sequence, Phase::kPreempted, step_start_);
  for (const PlannedRows& part : plan.parts) {
    Sequence& sequence = *part.sequence;
    const bool decodes = sequence.num_remaining() == 1 && sequence.num_output() > 0;
    EnterPhase(sequence, decodes ? Phase::kDecode : Phase::kPrefill, step_start_);
    if (!std::exchange(sequence.was_stepped, true)) sequence.first_step = step_start_;
  }
  return batch_.Begin(std::move(plan));
}

void DecodeScheduler::FinishStep(const absl::Status& status) {
  if (status.ok()) {
    ReportOutputs(parts_.clock->Now());
  } else {
    FailStep(status);
  }
  Admit();
}

void DecodeScheduler::FailStep(const absl::Status& status) {
  const StepPlan plan = batch_.plan();
  batch_.Abandon();
  for (const PlannedRows& part : plan.parts) {
    Fail(*part.sequence,
         absl::InternalError(absl::StrFormat("decode step failed: %s", status.ToString())));
  }
}

void DecodeScheduler::ReportOutputs(absl::Time end) {
  const int decode_rows = batch_.plan().decode_rows;
  const int prefill_rows = batch_.plan().prefill_rows;
  FreeHidden();
  std::vector<StepBatch::Sampled> sampled = batch_.Commit();
  std::vector<Sequence*> finished;
  for (StepBatch::Sampled& result : sampled) {
    session::TokenOutput output = MakeOutput(*result.sequence, std::move(result.token), end);
    if (output.finish != FinishReason::kNone) finished.push_back(result.sequence);
    outputs_.Add(result.sequence->key.session, std::move(output));
  }
  outputs_.Flush(*parts_.outbox);
  for (Sequence* sequence : finished) End(*sequence, absl::OkStatus());
  parts_.observer->OnStep(decode_rows, prefill_rows, static_cast<int>(sampled.size()));
  NoteRate(prefill_rows, end - step_start_);
}

void DecodeScheduler::FreeHidden() const {
  if (limits_.window == 0) return;
  for (const PlannedRows& part : batch_.plan().parts) {
    const int next = part.sequence->num_computed + part.num_rows;
    part.sequence->blocks.ReleaseFront(limits_.FirstVisibleBlock(next));
  }
}

session::TokenOutput DecodeScheduler::MakeOutput(Sequence& sequence, SampledToken token,
                                                 absl::Time end) {
  session::TokenOutput output;
  output.request_id = sequence.key.request_id;
  output.first_position = sequence.num_output() - 1;
  output.tokens.push_back(std::move(token));
  output.finish = engine::CheckFinish(sequence.sampling, sequence.prompt_size, sequence.output(),
                                      limits_.context());
  if (output.first_position == 0) output.prompt_logprobs = std::move(sequence.prompt_logprobs);
  if (std::exchange(sequence.reported, true)) return output;
  if (sequence.local_prefill) {
    output.times.prefill_queue = sequence.first_step - sequence.arrived;
    output.times.prefill_compute = end - sequence.first_step;
  } else {
    output.times.adopt = std::max(sequence.first_step - sequence.received, absl::ZeroDuration());
    output.times.first_decode_step = end - sequence.first_step;
  }
  parts_.observer->OnFirstOutput(sequence, output.times);
  return output;
}

void DecodeScheduler::NoteRate(int prefill_rows, absl::Duration duration) {
  if (prefill_rows == 0 || duration <= absl::ZeroDuration()) return;
  constexpr double kNewest = 0.2;  // weight of the newest step: the last five or so count
  const double rate = prefill_rows / absl::ToDoubleSeconds(duration);
  double& average = prefill_tokens_per_second_;
  average = average == 0 ? rate : (1 - kNewest) * average + kNewest * rate;
}

void DecodeScheduler::EnterPhase(Sequence& sequence, Phase phase, absl::Time at) {
  if (sequence.phase == phase) return;
  sequence.phase = phase;
  parts_.observer->OnPhase(sequence, at);
}

// ---- views

session::WorkerLoad DecodeScheduler::Load() const {
  session::WorkerLoad load;
  load.blocks = Books();
  load.running = static_cast<std::int32_t>(table_.in(SequenceState::kRunning).size());
  load.waiting = static_cast<std::int32_t>(table_.in(SequenceState::kWaiting).size());
  for (const Sequence* sequence : table_.all()) {
    // What a transfer brings is not computed here.
    if (!sequence->needs_transfer && sequence->num_remaining() > 1) {
      load.waiting_tokens += sequence->num_remaining();
    }
  }
  load.prefill_tokens_per_second = prefill_tokens_per_second_;
  load.draining = draining_;
  return load;
}

session::BlockBooks DecodeScheduler::Books() const {
  return CountBlocks(table_, *parts_.allocator);
}

absl::Status DecodeScheduler::CheckBooks() const {
  return CheckBlocks(table_, *parts_.allocator, limits_);
}

}  // namespace baton::decode_worker
