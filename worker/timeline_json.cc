#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/timeline_store.h"

namespace baton::worker {
namespace {

using Json = nlohmann::ordered_json;

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

Json PhasesToJson(const Timeline& timeline, absl::Time end) {
  Json phases = Json::array();
  const absl::Time begin = timeline.marks.front().at;
  for (std::size_t i = 0; i < timeline.marks.size(); ++i) {
    const absl::Time from = timeline.marks[i].at;
    const absl::Time to = i + 1 < timeline.marks.size() ? timeline.marks[i + 1].at : end;
    phases.push_back({{"phase", timeline.marks[i].phase},
                      {"start_seconds", Seconds(from - begin)},
                      {"seconds", Seconds(to - from)}});
  }
  return phases;
}

Json TimesToJson(const session::PhaseTimes& times) {
  Json layers = Json::array();
  for (const session::LayerTiming& layer : times.layers) {
    layers.push_back({{"layer", layer.layer},
                      {"computed_seconds", Seconds(layer.computed)},
                      {"sent_seconds", Seconds(layer.sent)}});
  }
  return {{"prefill_queue_seconds", Seconds(times.prefill_queue)},
          {"prefill_compute_seconds", Seconds(times.prefill_compute)},
          {"exposed_transfer_seconds", Seconds(times.exposed_transfer)},
          {"adopt_seconds", Seconds(times.adopt)},
          {"first_decode_step_seconds", Seconds(times.first_decode_step)},
          {"transfer_bytes", times.transfer_bytes},
          {"transfer_total_seconds", Seconds(times.transfer_total)},
          {"layers", std::move(layers)}};
}

}  // namespace

std::string TimelineToJson(const Timeline& timeline, absl::Time now) {
  const absl::Time end = std::min(timeline.ended, now);
  const Json json = {{"request_id", timeline.request_id},
                     {"prompt_tokens", timeline.prompt_tokens},
                     {"output_tokens", timeline.output_tokens},
                     {"outcome", timeline.outcome.empty() ? "running" : timeline.outcome},
                     {"started", absl::FormatTime(absl::RFC3339_full, timeline.marks.front().at,
                                                  absl::UTCTimeZone())},
                     {"total_seconds", Seconds(end - timeline.marks.front().at)},
                     {"phases", PhasesToJson(timeline, end)},
                     {"times", TimesToJson(timeline.times)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace baton::worker
