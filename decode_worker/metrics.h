#pragma once
#include <array>
#include <cstddef>

#include "common/metrics.h"
#include "decode_worker/request_observer.h"

namespace baton::decode_worker {

// What a decode worker exports besides worker::WorkerMetrics and kvtransfer::TransferMetrics.
// Thread-safe.
struct DecodeMetrics {
  explicit DecodeMetrics(metrics::Registry& registry);

  metrics::Counter& refused(RefusalReason reason) {
    return *refusals[static_cast<std::size_t>(reason)];
  }

  metrics::Counter& preemptions;
  metrics::Counter& decode_rows;
  metrics::Histogram& reserve_seconds;  // from a reservation's arrival to its ticket
  metrics::Histogram& adopt_seconds;
  metrics::Histogram& first_decode_step_seconds;
  std::array<metrics::Counter*, kNumRefusalReasons> refusals;  // not owned; by reason
};

}  // namespace baton::decode_worker
