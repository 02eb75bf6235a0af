#include "decode_worker/metrics.h"

namespace baton::decode_worker {
namespace {

metrics::Counter* AddRefusal(metrics::Registry& registry, const char* reason) {
  return &registry.AddCounter("baton_decode_refusals_total",
                              "Requests that the decode worker did not take, by reason.",
                              {{"reason", reason}});
}

}  // namespace

DecodeMetrics::DecodeMetrics(metrics::Registry& registry)
    : preemptions(registry.AddCounter("baton_decode_preemptions_total",
                                      "Sequences that gave back their KV blocks to others and are "
                                      "computed again later.")),
      decode_rows(registry.AddCounter("baton_decode_rows_total",
                                      "Decode rows computed: sequence steps of one token.")),
      reserve_seconds(registry.AddHistogram("baton_decode_reserve_seconds",
                                            "From a reservation's arrival until its ticket.")),
      adopt_seconds(registry.AddHistogram("baton_decode_adopt_seconds",
                                          "From the last KV block's arrival until the sequence is "
                                          "in a step.")),
      first_decode_step_seconds(registry.AddHistogram(
          "baton_decode_first_step_seconds", "Duration of a handed-over sequence's first step.")),
      refusals{AddRefusal(registry, "queue_full"), AddRefusal(registry, "draining"),
               AddRefusal(registry, "invalid"), AddRefusal(registry, "no_transfers")} {}

}  // namespace baton::decode_worker
