#include "router/metrics.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

metrics::Gauge& WorkerGauge(metrics::Registry& registry, const char* role) {
  return registry.AddGauge("baton_router_workers", "Registered workers", {{"role", role}});
}

}  // namespace

RouterMetrics::RouterMetrics(metrics::Registry& registry)
    : registry_(registry),
      ttft_(registry.AddHistogram("baton_ttft_seconds",
                                  "From a request's arrival to its first token leaving")),
      tpot_(registry.AddHistogram("baton_tpot_seconds",
                                  "Per sequence: (last - first token) / (output tokens - 1)")),
      itl_(registry.AddHistogram("baton_itl_seconds", "Each gap between successive tokens")),
      e2e_(registry.AddHistogram("baton_e2e_seconds",
                                 "From arrival to the end of sequences that finished")),
      prompt_tokens_(registry.AddCounter("baton_prompt_tokens_total",
                                         "Prompt tokens of sequences that ended")),
      output_tokens_(
          registry.AddCounter("baton_output_tokens_total", "Output tokens given to clients")),
      transfer_bytes_(registry.AddCounter("baton_router_kv_transfer_bytes_total",
                                          "KV bytes handed over, as prefill workers report")),
      running_(
          registry.AddGauge("baton_router_running_sequences", "Sequences admitted and not over")),
      waiting_(registry.AddGauge("baton_router_waiting_sequences",
                                 "Of these, without a first token yet")),
      prefill_workers_(WorkerGauge(registry, "prefill")),
      decode_workers_(WorkerGauge(registry, "decode")),
      both_workers_(WorkerGauge(registry, "both")),
      draining_workers_(registry.AddGauge("baton_router_draining_workers",
                                          "Registered workers that take nothing new")) {
  for (int phase = 0; phase < kNumPhases; ++phase) {
    phases_[phase] = &registry.AddHistogram(
        "baton_phase_seconds",
        "Where a finished sequence's time went; the phases add up to its E2E",
        metrics::SecondsBuckets(), {{"phase", std::string(PhaseName(static_cast<Phase>(phase)))}});
  }
}

void RouterMetrics::CountRequest(std::string_view door, int http_status) {
  registry_
      .AddCounter("baton_requests_total", "Requests by door and HTTP status; 499: client went away",
                  {{"door", std::string(door)}, {"code", absl::StrCat(http_status)}})
      .Add();
}

void RouterMetrics::CountRefusal(const absl::Status& status) {
  registry_
      .AddCounter("baton_router_refusals_total",
                  "Times a worker or the router would not take a sequence",
                  {{"reason", absl::StatusCodeToString(status.code())}})
      .Add();
}

void RouterMetrics::ObserveTokens(absl::Duration gap, int num_tokens) {
  itl_.Observe(absl::ToDoubleSeconds(gap));
  for (int i = 1; i < num_tokens; ++i) itl_.Observe(0);
}

void RouterMetrics::ObserveEnd(const SequenceRecord& record) {
  prompt_tokens_.Add(record.num_prompt_tokens);
  output_tokens_.Add(record.num_output_tokens);
  if (record.first_token == absl::InfinitePast()) return;
  const Timeline& timeline = record.timeline;
  ttft_.Observe(absl::ToDoubleSeconds(record.first_token - timeline.arrival()));
  if (record.num_output_tokens > 1) {
    tpot_.Observe(absl::ToDoubleSeconds(record.last_token - record.first_token) /
                  (record.num_output_tokens - 1));
  }
  if (record.outcome == "finished" || record.outcome == "stopped") {
    e2e_.Observe(absl::ToDoubleSeconds(timeline.ended() - timeline.arrival()));
  }
}

void RouterMetrics::ObservePhases(const SequenceRecord& record) {
  transfer_bytes_.Add(static_cast<double>(record.timeline.times().transfer_bytes));
  if (record.outcome != "finished" && record.outcome != "stopped") return;
  const auto phases = record.timeline.Phases();
  for (int phase = 0; phase < kNumPhases; ++phase) {
    phases_[phase]->Observe(absl::ToDoubleSeconds(phases[phase]));
  }
}

void RouterMetrics::UpdateGauges(const Dispatcher& dispatcher) {
  running_.Set(dispatcher.num_sequences());
  waiting_.Set(dispatcher.num_waiting());
  const WorkerCounts counts = dispatcher.registry().Count();
  prefill_workers_.Set(counts.num_prefill);
  decode_workers_.Set(counts.num_decode);
  both_workers_.Set(counts.num_both);
  draining_workers_.Set(counts.num_draining);
}

}  // namespace baton::router
