#include "kvtransfer/metrics.h"

#include <string>

namespace baton::kvtransfer {
namespace {

metrics::Counter& Result(metrics::Registry& registry, const std::string& side, const char* result) {
  return registry.AddCounter("baton_kv_transfers_total", "KV transfers ended, by how.",
                             {{"side", side}, {"result", result}});
}

}  // namespace

TransferMetrics::TransferMetrics(metrics::Registry& registry, const char* side)
    : bytes(registry.AddCounter("baton_kv_transfer_bytes_total",
                                "Bytes of KV blocks handed to or taken from links.",
                                {{"side", side}})),
      refused_blocks(registry.AddCounter(
          "baton_kv_transfer_refused_blocks_total",
          "KV blocks that came late, twice or for no reservation, and were not written.",
          {{"side", side}})),
      links_open(registry.AddGauge("baton_kv_transfer_links_open",
                                   "Links to other workers that are up.", {{"side", side}})),
      completed(Result(registry, side, "completed")),
      cancelled(Result(registry, side, "cancelled")),
      expired(Result(registry, side, "expired")),
      failed(Result(registry, side, "failed")),
      seconds(registry.AddHistogram(
          "baton_kv_transfer_seconds",
          "From a transfer's first byte until it was complete (receive) or acknowledged (send).",
          metrics::SecondsBuckets(), {{"side", side}})) {}

void TransferMetrics::Count(const absl::Status& outcome, absl::Duration took) {
  switch (outcome.code()) {
    case absl::StatusCode::kOk:
      completed.Add(1);
      seconds.Observe(absl::ToDoubleSeconds(took));
      break;
    case absl::StatusCode::kCancelled:
      cancelled.Add(1);
      break;
    case absl::StatusCode::kDeadlineExceeded:
      expired.Add(1);
      break;
    default:
      failed.Add(1);
  }
}

}  // namespace baton::kvtransfer
