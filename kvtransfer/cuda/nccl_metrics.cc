#include "kvtransfer/cuda/nccl_metrics.h"

namespace baton::kvtransfer::cuda {

NcclMetrics::NcclMetrics(metrics::Registry& registry, const char* side)
    : pairs_open(registry.AddGauge("baton_kv_nccl_pairs_open",
                                   "NCCL communicators open, each between two ranks.",
                                   {{"side", side}})),
      memory_bytes(registry.AddGauge("baton_kv_nccl_memory_bytes",
                                     "Device memory that open NCCL pairs take, staging included.",
                                     {{"side", side}})),
      bytes(registry.AddCounter("baton_kv_nccl_bytes_total",
                                "Bytes of KV blocks moved from device to device.",
                                {{"side", side}})),
      aborts(registry.AddCounter("baton_kv_nccl_aborts_total",
                                 "NCCL pairs that were aborted: their link or the peer broke.",
                                 {{"side", side}})) {}

}  // namespace baton::kvtransfer::cuda
