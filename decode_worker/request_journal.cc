#include "decode_worker/request_journal.h"

#include <string>

#include "common/log.h"

namespace baton::decode_worker {
namespace {

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kQueued:
      return "queued";
    case Phase::kReceiving:
      return "receiving";
    case Phase::kReady:
      return "ready";
    case Phase::kPrefill:
      return "prefill";
    case Phase::kDecode:
      return "decode";
    case Phase::kPreempted:
      return "preempted";
  }
  return "unknown";
}

}  // namespace

void RequestJournal::OnRefused(const session::RequestSpec& spec, RefusalReason reason,
                               const absl::Status& status) {
  decode_.refused(reason).Add();
  worker_.CountRequest(status.code());
  log::Info("request refused",
            {{"request", spec.request_id}, {"error", std::string(status.message())}});
}

void RequestJournal::OnPhase(const Sequence& sequence, absl::Time at) {
  const std::string& id = sequence.key.request_id;
  if (sequence.phase == Phase::kQueued) {
    timelines_.Begin(id, sequence.prompt_size, PhaseName(sequence.phase), at);
    return;
  }
  timelines_.Mark(id, PhaseName(sequence.phase), at);
  switch (sequence.phase) {
    case Phase::kReceiving:
      decode_.reserve_seconds.Observe(absl::ToDoubleSeconds(at - sequence.arrived));
      break;
    case Phase::kPreempted:
      decode_.preemptions.Add();
      log::Debug("sequence preempted", {{"request", id}, {"output_tokens", sequence.num_output()}});
      break;
    default:
      break;
  }
}

void RequestJournal::OnStep(int decode_rows, int prefill_rows, int output_tokens) {
  decode_.decode_rows.Add(decode_rows);
  worker_.prompt_tokens.Add(prefill_rows);
  worker_.output_tokens.Add(output_tokens);
}

void RequestJournal::OnFirstOutput(const Sequence& sequence, const session::PhaseTimes& times) {
  timelines_.SetTimes(sequence.key.request_id, times);
  worker_.queue_seconds.Observe(absl::ToDoubleSeconds(sequence.first_step - sequence.arrived));
  if (sequence.local_prefill) return;
  decode_.adopt_seconds.Observe(absl::ToDoubleSeconds(times.adopt));
  decode_.first_decode_step_seconds.Observe(absl::ToDoubleSeconds(times.first_decode_step));
}

void RequestJournal::OnEnd(const Sequence& sequence, const absl::Status& why, absl::Time at) {
  const std::string& id = sequence.key.request_id;
  const std::string outcome = why.ok() ? "finished" : why.ToString();
  timelines_.End(id, outcome, sequence.num_output(), at);
  worker_.CountRequest(why.code());
  if (why.ok() || absl::IsCancelled(why)) {
    log::Debug("request ended", {{"request", id}, {"outcome", outcome}});
    return;
  }
  log::Warn("request failed", {{"request", id}, {"error", outcome}});
}

}  // namespace baton::decode_worker
