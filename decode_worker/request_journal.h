#pragma once
#include "decode_worker/metrics.h"
#include "decode_worker/request_observer.h"
#include "worker/metrics.h"
#include "worker/timeline_store.h"

namespace baton::decode_worker {

// Writes what becomes of requests into metrics, timelines and the log. Not thread-safe itself: its
// one caller is the scheduler.
class RequestJournal final : public RequestObserver {
 public:
  // All must outlive the journal.
  RequestJournal(worker::WorkerMetrics& worker_metrics, DecodeMetrics& decode_metrics,
                 worker::TimelineStore& timelines)
      : worker_(worker_metrics), decode_(decode_metrics), timelines_(timelines) {}

  void OnRefused(const session::RequestSpec& spec, RefusalReason reason,
                 const absl::Status& status) override;
  void OnPhase(const Sequence& sequence, absl::Time at) override;
  void OnStep(int decode_rows, int prefill_rows, int output_tokens) override;
  void OnFirstOutput(const Sequence& sequence, const session::PhaseTimes& times) override;
  void OnEnd(const Sequence& sequence, const absl::Status& why, absl::Time at) override;

 private:
  worker::WorkerMetrics& worker_;
  DecodeMetrics& decode_;
  worker::TimelineStore& timelines_;
};

}  // namespace baton::decode_worker
