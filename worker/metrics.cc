#include "worker/metrics.h"

#include <string>
#include <vector>

namespace baton::worker {
namespace {

constexpr char kBlocks[] = "baton_kv_blocks";
constexpr char kBlocksHelp[] =
    "KV blocks by state; free + cached + reserved + active equal total at all times.";

const std::vector<double>& RowBuckets() {
  static const std::vector<double> bounds = {1,  2,   4,   8,   16,  24,  32,   48,   64,
                                             96, 128, 192, 256, 384, 512, 1024, 2048, 4096};
  return bounds;
}

std::string OutcomeName(absl::StatusCode code) {
  if (code == absl::StatusCode::kOk) return "finished";
  std::string name = absl::StatusCodeToString(code);  // "RESOURCE_EXHAUSTED"
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

}  // namespace

WorkerMetrics::WorkerMetrics(metrics::Registry& registry)
    : blocks_free(registry.AddGauge(kBlocks, kBlocksHelp, {{"state", "free"}})),
      blocks_cached(registry.AddGauge(kBlocks, kBlocksHelp, {{"state", "cached"}})),
      blocks_reserved(registry.AddGauge(kBlocks, kBlocksHelp, {{"state", "reserved"}})),
      blocks_active(registry.AddGauge(kBlocks, kBlocksHelp, {{"state", "active"}})),
      blocks_total(registry.AddGauge("baton_kv_blocks_total_count", "KV blocks of the pool.")),
      running(registry.AddGauge("baton_worker_running_sequences",
                                "Sequences being computed or handed over.")),
      waiting(registry.AddGauge("baton_worker_waiting_requests", "Requests queued.")),
      waiting_tokens(registry.AddGauge("baton_worker_waiting_tokens",
                                       "Prompt tokens accepted and not yet computed.")),
      connected_routers(
          registry.AddGauge("baton_worker_connected_routers", "Routers with an open session.")),
      draining(registry.AddGauge("baton_worker_draining", "1 once a drain began.")),
      step_seconds(registry.AddHistogram("baton_step_seconds", "Duration of an engine step.")),
      step_rows(
          registry.AddHistogram("baton_step_rows", "Token rows computed in a step.", RowBuckets())),
      step_sequences(
          registry.AddHistogram("baton_step_sequences", "Sequences in a step.", RowBuckets())),
      queue_seconds(registry.AddHistogram("baton_worker_queue_seconds",
                                          "From a request's arrival at the worker until its "
                                          "first step.")),
      steps(registry.AddCounter("baton_steps_total", "Engine steps.")),
      step_failures(registry.AddCounter("baton_step_failures_total", "Engine steps that failed.")),
      prompt_tokens(registry.AddCounter("baton_prompt_tokens_total", "Prompt tokens computed.")),
      output_tokens(registry.AddCounter("baton_output_tokens_total", "Tokens sampled.")),
      registry_(registry) {}

void WorkerMetrics::Update(const session::WorkerLoad& load) {
  blocks_free.Set(load.blocks.free);
  blocks_cached.Set(load.blocks.cached);
  blocks_reserved.Set(load.blocks.reserved);
  blocks_active.Set(load.blocks.active);
  blocks_total.Set(load.blocks.total);
  running.Set(load.running);
  waiting.Set(load.waiting);
  waiting_tokens.Set(load.waiting_tokens);
  draining.Set(load.draining ? 1 : 0);
}

void WorkerMetrics::CountRequest(absl::StatusCode outcome) {
  registry_
      .AddCounter("baton_worker_requests_total", "Requests that left this worker, by outcome.",
                  {{"outcome", OutcomeName(outcome)}})
      .Add();
}

}  // namespace baton::worker
