#include "absl/strings/str_format.h"
#include "router/api/json_text.h"
#include "router/http/http_front.h"

namespace baton::router {
namespace {

void AppendSeconds(std::string_view name, absl::Duration duration, std::string& out) {
  // Whole nanoseconds, so that phases add up in the answer as they do inside.
  out += absl::StrFormat("\"%s\":%d.%09d", std::string(name), absl::ToInt64Seconds(duration),
                         absl::ToInt64Nanoseconds(duration % absl::Seconds(1)));
}

void AppendField(std::string_view name, std::string_view value, std::string& out) {
  out += '"';
  out += name;
  out += "\":";
  AppendJsonString(value, out);
  out += ',';
}

void AppendTransfer(const session::PhaseTimes& times, std::string& out) {
  out += ",\"transfer\":{\"bytes\":";
  AppendInt(times.transfer_bytes, out);
  out += ',';
  AppendSeconds("total_seconds", times.transfer_total, out);
  out += ',';
  AppendSeconds("exposed_seconds", times.exposed_transfer, out);
  out += ",\"layers\":[";
  for (std::size_t i = 0; i < times.layers.size(); ++i) {
    const session::LayerTiming& layer = times.layers[i];
    if (i > 0) out += ',';
    out += "{\"layer\":";
    AppendInt(layer.layer, out);
    out += ',';
    AppendSeconds("computed_seconds", layer.computed, out);
    out += ',';
    AppendSeconds("sent_seconds", layer.sent, out);
    out += '}';
  }
  out += "]}";
}

void AppendSequence(const SequenceRecord& record, std::string& out) {
  const Timeline& timeline = record.timeline;
  out += '{';
  AppendField("sequence_id", record.sequence_id, out);
  AppendField("outcome", record.outcome, out);
  if (!record.message.empty()) AppendField("error", record.message, out);
  AppendField("prefill_worker", record.prefill_worker, out);
  AppendField("decode_worker", record.decode_worker, out);
  AppendField("arrival", absl::FormatTime(timeline.arrival(), absl::UTCTimeZone()), out);
  out += "\"index\":";
  AppendInt(record.index, out);
  out += ",\"prompt_tokens\":";
  AppendInt(record.num_prompt_tokens, out);
  out += ",\"output_tokens\":";
  AppendInt(record.num_output_tokens, out);
  out += ',';
  AppendSeconds("latency_seconds", timeline.ended() - timeline.arrival(), out);
  if (record.first_token != absl::InfinitePast()) {
    out += ',';
    AppendSeconds("ttft_seconds", record.first_token - timeline.arrival(), out);
  }
  out += ",\"phases\":{";
  const auto phases = timeline.Phases();
  for (int phase = 0; phase < kNumPhases; ++phase) {
    if (phase > 0) out += ',';
    AppendSeconds(PhaseName(static_cast<Phase>(phase)), phases[phase], out);
  }
  out += '}';
  AppendTransfer(timeline.times(), out);
  out += '}';
}

}  // namespace

std::string TimelineJson(const std::vector<SequenceRecord>& records) {
  std::string out = "{";
  AppendField("request_id", records.front().request_id, out);
  out += "\"sequences\":[";
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i > 0) out += ',';
    AppendSequence(records[i], out);
  }
  out += "]}";
  return out;
}

}  // namespace baton::router
