#include "prefill_worker/prefill_scheduler.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status.h"
#include "prefill_worker/request_check.h"

namespace baton::prefill_worker {
namespace {

// Weight of the newest step in the prefill rate told to routers: about the last ten count.
constexpr double kRateWeight = 0.1;

}  // namespace

PrefillScheduler::PrefillScheduler(PrefillLimits limits, Parts parts)
    : limits_(std::move(limits)), parts_(std::move(parts)) {}

void PrefillScheduler::Handle(worker::Event event) {
  std::visit([this](auto&& kind) { On(std::forward<decltype(kind)>(kind)); }, std::move(event));
}

void PrefillScheduler::On(worker::RouterEvent event) {
  if (auto* prefill = std::get_if<session::Prefill>(&event.message)) {
    worker::RequestKey key{event.from, prefill->spec.request_id};
    OnPrefill(std::move(key), std::move(*prefill), event.arrived);
  } else if (const auto* cancel = std::get_if<session::Cancel>(&event.message)) {
    OnCancel({event.from, cancel->request_id});
  } else if (const auto* reserve = std::get_if<session::Reserve>(&event.message)) {
    Refuse({event.from, reserve->spec.request_id},
           absl::InvalidArgumentError("a prefill worker takes no reservations"));
  }
}

void PrefillScheduler::OnPrefill(worker::RequestKey key, session::Prefill prefill,
                                 absl::Time arrived) {
  if (PrefillRequest* double_use = table_.Find(key); double_use != nullptr) {
    return Fail(*double_use, absl::InvalidArgumentError("request id used twice in one session"));
  }
  if (const absl::Status status = CheckAdmission(prefill); !status.ok()) {
    return Refuse(key, status);
  }
  auto request = std::make_unique<PrefillRequest>();
  request->number = next_number_++;
  request->key = std::move(key);
  request->spec = std::move(prefill.spec);
  request->ticket = std::move(prefill.ticket);
  request->arrived = arrived;
  request->deadline = arrived + request->spec.time_left;
  SamplingParams& sampling = request->spec.sampling;
  sampling.top_logprobs = std::min(sampling.top_logprobs, limits_.vocab_size);
  sampling.num_prompt_logprobs = std::min(sampling.num_prompt_logprobs, limits_.vocab_size);
  parts_.timelines->Begin(request->spec.request_id, request->num_tokens(), "queued", arrived);
  table_.Add(std::move(request));
}

absl::Status PrefillScheduler::CheckAdmission(const session::Prefill& prefill) const {
  if (draining_) return absl::UnavailableError("prefill worker is draining");
  BATON_RETURN_IF_ERROR(CheckPrefill(limits_, parts_.allocator->num_blocks(), prefill));
  const auto not_started =
      std::count_if(table_.admitted().begin(), table_.admitted().end(),
                    [](const PrefillRequest* request) { return !request->started(); });
  const std::int64_t waiting = static_cast<std::int64_t>(table_.waiting().size()) + not_started;
  if (waiting >= limits_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("prefill queue is full: %d requests, max-waiting %d; retry later", waiting,
                        limits_.max_waiting));
  }
  return absl::OkStatus();
}

void PrefillScheduler::Refuse(const worker::RequestKey& key, const absl::Status& status) {
  parts_.metrics->CountRequest(status.code());
  parts_.outbox->Send(key.session, session::RequestFailed{key.request_id, status});
}

void PrefillScheduler::OnCancel(const worker::RequestKey& key) {
  PrefillRequest* request = table_.Find(key);
  if (request != nullptr) End(*request, absl::CancelledError("cancelled by the router"));
}

void PrefillScheduler::On(const worker::SessionLost& event) {
  for (PrefillRequest* request : table_.OfSession(event.session)) {
    End(*request, absl::CancelledError("session with the router ended"));
  }
}

void PrefillScheduler::On(const worker::EndAll& event) {
  for (PrefillRequest* request : table_.Live()) Fail(*request, event.why);
}

void PrefillScheduler::On(const worker::SendDone& event) {
  PrefillRequest* request = table_.FindTransfer(event.key);
  if (request == nullptr) return;
  if (request->phase == PrefillPhase::kAbandoned) return table_.Remove(*request);
  if (request->phase == PrefillPhase::kHandoff && event.status.ok()) {
    ReportHandoff(*request, event.report);
    Account(*request, absl::OkStatus());
    return table_.Remove(*request);
  }
  const absl::Status status =
      event.status.ok() ? absl::InternalError("transfer ended before the prompt was computed")
                        : event.status;
  const absl::Status named =
      Annotate(status, absl::StrCat("handoff to ", request->ticket.worker_id));
  parts_.outbox->Send(request->key.session, session::RequestFailed{request->key.request_id, named});
  Account(*request, named);
  table_.Remove(*request);
}

void PrefillScheduler::Tick() {
  const absl::Time now = parts_.clock->Now();
  for (PrefillRequest* request : table_.Due(now)) {
    Fail(*request, absl::DeadlineExceededError(absl::StrFormat(
                       "deadline passed at the prefill worker: %d of %d prompt tokens computed",
                       request->num_computed, request->num_tokens())));
  }
}

void PrefillScheduler::Admit() {
  while (!table_.waiting().empty()) {
    PrefillRequest& head = **table_.waiting().begin();
    auto blocks = parts_.allocator->Allocate(limits_.cut.BlocksFor(head.num_tokens()));
    if (!blocks.ok()) return;  // nobody overtakes the head: a long prompt would never fit
    AdmitOne(head, *std::move(blocks));
  }
}

void PrefillScheduler::AdmitOne(PrefillRequest& request, engine::BlockList blocks) {
  request.blocks = std::move(blocks);
  request.transfer =
      parts_.sender->Begin(request.ticket, request.blocks.ids(),
                           [post = parts_.post](std::uint64_t key, const absl::Status& status,
                                                const kvtransfer::SendReport& report) {
                             post(worker::SendDone{key, status, report});
                           });
  table_.Enter(request, PrefillPhase::kAdmitted);
}

std::span<const engine::SequenceStep> PrefillScheduler::PlanStep() {
  Admit();
  chunks_.clear();
  steps_.clear();
  int budget = limits_.max_batched_tokens;
  for (PrefillRequest* request : table_.admitted()) {
    if (budget == 0 || static_cast<int>(chunks_.size()) == limits_.max_sequences) break;
    chunks_.push_back(MakeChunk(*request, budget));
    budget -= chunks_.back().end - chunks_.back().begin;
  }
  step_start_ = parts_.clock->Now();
  for (const Chunk& chunk : chunks_) {
    PrefillRequest& request = *chunk.request;
    if (!request.started()) {
      request.compute_start = step_start_;
      parts_.metrics->queue_seconds.Observe(absl::ToDoubleSeconds(step_start_ - request.arrived));
      parts_.timelines->Mark(request.spec.request_id, "computing", step_start_);
    }
    engine::SequenceStep& step = steps_.emplace_back();
    step.tokens = std::span(request.spec.prompt).subspan(chunk.begin, chunk.end - chunk.begin);
    step.start_position = chunk.begin;
    step.block_table = request.blocks.ids();
    step.prompt_length = request.num_tokens();
    if (request.spec.sampling.prompt_logprobs) step.logits = engine::LogitRows::kAll;
    if (!chunk.last()) continue;
    step.sampling = &request.spec.sampling;
    step.prompt = request.spec.prompt;
  }
  return steps_;
}

PrefillScheduler::Chunk PrefillScheduler::MakeChunk(PrefillRequest& request, int budget) const {
  const int block_size = limits_.cut.block_size;
  Chunk chunk;
  chunk.request = &request;
  chunk.begin = request.num_computed;
  chunk.end = chunk.begin + std::min(budget, request.num_tokens() - chunk.begin);
  // The block that `begin` lies in was not full after the chunk before; a partial block at `end`
  // goes with the chunk that fills it, or with the last one.
  chunk.first_block = chunk.begin / block_size;
  chunk.last_block = chunk.last() ? limits_.cut.BlocksFor(chunk.end) : chunk.end / block_size;
  return chunk;
}

void PrefillScheduler::OnLayer(int layer) {
  for (const Chunk& chunk : chunks_) {
    if (chunk.first_block == chunk.last_block) continue;
    parts_.sender->PutLayer(chunk.request->transfer, layer, chunk.first_block, chunk.last_block);
  }
}

void PrefillScheduler::OnLogits(int index, int row, std::span<float> logits) {
  const Chunk& chunk = chunks_[index];
  PrefillRequest& request = *chunk.request;
  const int next = chunk.begin + row + 1;  // the position that these logits are about
  if (next == request.num_tokens()) return;
  request.prompt_logprobs.push_back(
      scorer_.Score(request.spec.prompt[next], request.spec.sampling.num_prompt_logprobs, logits));
}

void PrefillScheduler::FinishStep(const absl::Status& status) {
  const absl::Time now = parts_.clock->Now();
  std::vector<Chunk> chunks;
  chunks.swap(chunks_);
  steps_.clear();
  if (!status.ok()) {
    for (const Chunk& chunk : chunks) {
      Fail(*chunk.request,
           absl::InternalError(absl::StrCat("prefill step failed: ", status.ToString())));
    }
    return;
  }
  int rows = 0;
  for (const Chunk& chunk : chunks) {
    rows += chunk.end - chunk.begin;
    FinishChunk(chunk, now);
  }
  outputs_.Flush(*parts_.outbox);
  parts_.metrics->prompt_tokens.Add(rows);
  const double seconds = absl::ToDoubleSeconds(now - step_start_);
  if (seconds <= 0) return;
  const double rate = rows / seconds;
  tokens_per_second_ =
      tokens_per_second_ == 0 ? rate : (1 - kRateWeight) * tokens_per_second_ + kRateWeight * rate;
}

void PrefillScheduler::FinishChunk(const Chunk& chunk, absl::Time now) {
  chunk.request->num_computed = chunk.end;
  if (chunk.last()) FinishPrompt(*chunk.request, now);
}

void PrefillScheduler::FinishPrompt(PrefillRequest& request, absl::Time now) {
  request.compute_end = now;
  const std::int32_t token = request.first_token.token;
  const FinishReason finish = engine::CheckFinish(request.spec.sampling, request.num_tokens(),
                                                  std::span(&token, 1), limits_.max_context);
  session::TokenOutput output;
  output.request_id = request.key.request_id;
  output.tokens = {request.first_token};
  output.finish = finish;
  output.prompt_logprobs = std::move(request.prompt_logprobs);
  output.times = ComputeTimes(request);
  outputs_.Add(request.key.session, std::move(output));
  parts_.sender->Complete(request.transfer, {std::move(request.first_token), finish});
  table_.Enter(request, PrefillPhase::kHandoff);
  parts_.metrics->output_tokens.Add();
  parts_.timelines->Mark(request.spec.request_id, "handoff", now);
}

session::PhaseTimes PrefillScheduler::ComputeTimes(const PrefillRequest& request) const {
  session::PhaseTimes times;
  times.prefill_queue = request.compute_start - request.arrived;
  times.prefill_compute = request.compute_end - request.compute_start;
  return times;
}

void PrefillScheduler::ReportHandoff(PrefillRequest& request,
                                     const kvtransfer::SendReport& report) {
  session::PhaseTimes times = ComputeTimes(request);
  times.exposed_transfer =
      std::max(absl::ZeroDuration(), report.acknowledged - request.compute_end);
  times.transfer_bytes = report.bytes;
  times.transfer_total = std::max(absl::ZeroDuration(), report.acknowledged - report.first_byte);
  for (const kvtransfer::LayerMark& mark : report.layers) {
    if (mark.sent == absl::InfinitePast()) continue;  // nothing of it had to move
    times.layers.push_back(
        {mark.layer, mark.ready - request.compute_start, mark.sent - request.compute_start});
  }
  parts_.timelines->SetTimes(request.spec.request_id, times);
  parts_.outbox->Send(request.key.session,
                      session::TransferReport{request.key.request_id, std::move(times)});
}

void PrefillScheduler::End(PrefillRequest& request, const absl::Status& why) {
  Account(request, why);
  if (request.phase == PrefillPhase::kWaiting) return table_.Remove(request);
  // Before Abort, whose callback may come at once.
  table_.Enter(request, PrefillPhase::kAbandoned);
  parts_.sender->Abort(request.transfer, why);
}

void PrefillScheduler::Fail(PrefillRequest& request, const absl::Status& status) {
  parts_.outbox->Send(request.key.session, session::RequestFailed{request.key.request_id, status});
  End(request, status);
}

void PrefillScheduler::Account(const PrefillRequest& request, const absl::Status& outcome) {
  const absl::Time now = parts_.clock->Now();
  const bool sampled = request.compute_end != absl::InfiniteFuture();
  parts_.metrics->CountRequest(outcome.code());
  parts_.timelines->End(request.spec.request_id, outcome.ok() ? "finished" : outcome.ToString(),
                        sampled ? 1 : 0, now);
  if (outcome.ok() || absl::IsCancelled(outcome)) {
    log::Debug("request left",
               {{"request", request.spec.request_id}, {"outcome", outcome.ToString()}});
  } else {
    log::Warn("request failed",
              {{"request", request.spec.request_id}, {"error", outcome.ToString()}});
  }
}

session::BlockBooks PrefillScheduler::Books() const {
  session::BlockBooks books;
  books.total = parts_.allocator->num_blocks();
  books.free = parts_.allocator->num_free();
  books.active = table_.num_blocks();
  return books;
}

absl::Status PrefillScheduler::CheckBooks() const {
  const session::BlockBooks books = Books();
  if (books.free + books.active == books.total) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("KV books do not balance: %d free + %d held != %d",
                                             books.free, books.active, books.total));
}

session::WorkerLoad PrefillScheduler::Load() const {
  session::WorkerLoad load;
  load.blocks = Books();
  load.draining = draining_;
  load.prefill_tokens_per_second = tokens_per_second_;
  load.waiting = static_cast<std::int32_t>(table_.waiting().size());
  load.running = static_cast<std::int32_t>(table_.num_live() - table_.waiting().size());
  for (const PrefillRequest* request : table_.waiting()) {
    load.waiting_tokens += request->num_tokens();
  }
  for (const PrefillRequest* request : table_.admitted()) {
    load.waiting_tokens += request->num_tokens() - request->num_computed;
    if (request->started()) continue;
    ++load.waiting;
    --load.running;
  }
  return load;
}

}  // namespace baton::prefill_worker
