#pragma once
#include <array>
#include <string_view>

#include "absl/status/status.h"
#include "common/metrics.h"
#include "router/core/dispatcher.h"
#include "router/core/timeline.h"

namespace baton::router {

// The router's metrics. One definition each:
//   TTFT  from a request's arrival at the router to its first token leaving it
//   TPOT  (last token - first token) / (output tokens - 1), one number per sequence
//   ITL   each gap between successive tokens; 0 for those that came together
//   E2E   from arrival to the end, of sequences that finished
// Phases are those of Timeline; for one sequence they add up to its E2E. Thread-safe.
class RouterMetrics {
 public:
  explicit RouterMetrics(metrics::Registry& registry);

  void CountRequest(std::string_view door, int http_status);
  void CountRefusal(const absl::Status& status);
  void ObserveTokens(absl::Duration gap, int num_tokens);
  void ObserveEnd(const SequenceRecord& record);
  void ObservePhases(const SequenceRecord& record);
  void UpdateGauges(const Dispatcher& dispatcher);

 private:
  metrics::Registry& registry_;
  metrics::Histogram& ttft_;
  metrics::Histogram& tpot_;
  metrics::Histogram& itl_;
  metrics::Histogram& e2e_;
  std::array<metrics::Histogram*, kNumPhases> phases_;
  metrics::Counter& prompt_tokens_;
  metrics::Counter& output_tokens_;
  metrics::Counter& transfer_bytes_;
  metrics::Gauge& running_;
  metrics::Gauge& waiting_;
  metrics::Gauge& prefill_workers_;
  metrics::Gauge& decode_workers_;
  metrics::Gauge& both_workers_;
  metrics::Gauge& draining_workers_;
};

}  // namespace baton::router
