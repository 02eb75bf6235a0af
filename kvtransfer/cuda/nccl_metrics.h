#pragma once
#include "common/metrics.h"

namespace baton::kvtransfer::cuda {

// What one end of NCCL links exports; `side` is "send" or "receive". Thread-safe.
struct NcclMetrics {
  NcclMetrics(metrics::Registry& registry, const char* side);

  metrics::Gauge& pairs_open;    // baton_kv_nccl_pairs_open{side}
  metrics::Gauge& memory_bytes;  // baton_kv_nccl_memory_bytes{side}
  metrics::Counter& bytes;       // baton_kv_nccl_bytes_total{side}
  metrics::Counter& aborts;      // baton_kv_nccl_aborts_total{side}
};

}  // namespace baton::kvtransfer::cuda
