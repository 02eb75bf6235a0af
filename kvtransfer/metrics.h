#pragma once
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics.h"

namespace baton::kvtransfer {

// What one end of KV transfers exports; `side` is "send" or "receive". Thread-safe.
struct TransferMetrics {
  TransferMetrics(metrics::Registry& registry, const char* side);
  // Of each transfer once, when it has ended; `took` counts when it went well.
  void Count(const absl::Status& outcome, absl::Duration took);

  metrics::Counter& bytes;           // baton_kv_transfer_bytes_total{side}
  metrics::Counter& refused_blocks;  // baton_kv_transfer_refused_blocks_total{side}
  metrics::Gauge& links_open;        // baton_kv_transfer_links_open{side}
  metrics::Counter& completed;       // baton_kv_transfers_total{side,result}
  metrics::Counter& cancelled;
  metrics::Counter& expired;
  metrics::Counter& failed;
  metrics::Histogram& seconds;  // baton_kv_transfer_seconds{side}
};

}  // namespace baton::kvtransfer
