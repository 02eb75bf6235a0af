#include "router/request_log.h"

#include "common/log.h"

namespace baton::router {
namespace {

std::string_view RoleName(session::WorkerRole role) {
  switch (role) {
    case session::WorkerRole::kPrefill:
      return "prefill";
    case session::WorkerRole::kDecode:
      return "decode";
    case session::WorkerRole::kBoth:
      return "both";
  }
  return "unknown";
}

}  // namespace

void RequestLog::OnWorkerOpened(const Worker& worker) {
  log::Info("worker registered", {{"worker", worker.hello.worker_id},
                                  {"role", RoleName(worker.hello.role)},
                                  {"incarnation", worker.hello.incarnation},
                                  {"model", worker.hello.served_model},
                                  {"blocks", worker.hello.num_blocks}});
}

void RequestLog::OnWorkerLost(const Worker& worker, std::string_view why) {
  log::Warn("worker lost", {{"worker", worker.hello.worker_id},
                            {"role", RoleName(worker.hello.role)},
                            {"incarnation", worker.hello.incarnation},
                            {"why", why},
                            {"sequences", worker.num_sequences}});
}

void RequestLog::OnTokens(absl::Duration gap, int num_tokens) {
  metrics_.ObserveTokens(gap, num_tokens);
}

void RequestLog::OnRefused(const absl::Status& status) {
  metrics_.CountRefusal(status);
  log::Warn("sequence or worker refused", {{"reason", status.ToString()}});
}

void RequestLog::OnEnded(const SequenceRecord& record) {
  metrics_.ObserveEnd(record);
  timelines_.Put(record);
  const absl::Time arrival = record.timeline.arrival();
  const double latency_ms = absl::ToDoubleMilliseconds(record.timeline.ended() - arrival);
  if (!record.message.empty()) {
    const bool cancelled = record.outcome == "cancelled";
    log::Write(cancelled ? log::Level::kInfo : log::Level::kWarn,
               cancelled ? "request cancelled" : "request failed",
               {{"request_id", record.request_id},
                {"choice", record.index},
                {"outcome", record.outcome},
                {"error", record.message},
                {"prefill_worker", record.prefill_worker},
                {"decode_worker", record.decode_worker},
                {"output_tokens", record.num_output_tokens},
                {"latency_ms", latency_ms}});
    return;
  }
  const bool has_token = record.first_token != absl::InfinitePast();
  log::Info(
      "request ended",
      {{"request_id", record.request_id},
       {"choice", record.index},
       {"outcome", record.outcome},
       {"prefill_worker", record.prefill_worker},
       {"decode_worker", record.decode_worker},
       {"prompt_tokens", record.num_prompt_tokens},
       {"output_tokens", record.num_output_tokens},
       {"ttft_ms", has_token ? absl::ToDoubleMilliseconds(record.first_token - arrival) : 0.0},
       {"latency_ms", latency_ms}});
}

void RequestLog::OnSettled(const SequenceRecord& record) {
  metrics_.ObservePhases(record);
  timelines_.Put(record);
}

}  // namespace baton::router
