#pragma once
#include <string_view>

#include "absl/status/status.h"
#include "common/metrics.h"
#include "session/messages.h"

namespace baton::worker {

// What both kinds of worker export. Thread-safe.
struct WorkerMetrics {
  explicit WorkerMetrics(metrics::Registry& registry);

  // Brings the gauges up to `load`.
  void Update(const session::WorkerLoad& load);
  // Of each request once, when it leaves the worker. kOk: "finished"; else the code in words.
  void CountRequest(absl::StatusCode outcome);

  metrics::Gauge& blocks_free;  // baton_kv_blocks{state=...}
  metrics::Gauge& blocks_cached;
  metrics::Gauge& blocks_reserved;
  metrics::Gauge& blocks_active;
  metrics::Gauge& blocks_total;
  metrics::Gauge& running;
  metrics::Gauge& waiting;
  metrics::Gauge& waiting_tokens;
  metrics::Gauge& connected_routers;
  metrics::Gauge& draining;
  metrics::Histogram& step_seconds;
  metrics::Histogram& step_rows;
  metrics::Histogram& step_sequences;
  metrics::Histogram& queue_seconds;  // from arrival until the first step
  metrics::Counter& steps;
  metrics::Counter& step_failures;
  metrics::Counter& prompt_tokens;  // computed
  metrics::Counter& output_tokens;  // sampled

 private:
  metrics::Registry& registry_;
};

}  // namespace baton::worker
