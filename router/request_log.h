#pragma once
#include "router/core/dispatcher.h"
#include "router/core/timeline_store.h"
#include "router/metrics.h"

namespace baton::router {

// Takes down what the dispatcher tells: metrics, timelines, one log line per event. Called on the
// core's thread.
class RequestLog final : public DispatchObserver {
 public:
  RequestLog(RouterMetrics& metrics, TimelineStore& timelines)
      : metrics_(metrics), timelines_(timelines) {}
  void OnWorkerOpened(const Worker& worker) override;
  void OnWorkerLost(const Worker& worker, std::string_view why) override;
  void OnTokens(absl::Duration gap, int num_tokens) override;
  void OnRefused(const absl::Status& status) override;
  void OnEnded(const SequenceRecord& record) override;
  void OnSettled(const SequenceRecord& record) override;

 private:
  RouterMetrics& metrics_;
  TimelineStore& timelines_;
};

}  // namespace baton::router
