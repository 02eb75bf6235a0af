#include "router/http/http_outputs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "router/api/api_error.h"

namespace baton::router {
namespace {

http::Headers JsonHeaders(const std::string& request_id) {
  return {{"Content-Type", "application/json"}, {"X-Request-Id", request_id}};
}

// A rough size of what a delta will take on the wire.
std::size_t WireBytes(const ChoiceDelta& delta) {
  std::size_t bytes = delta.text.size() + 8 * delta.token_ids.size();
  for (const SampledToken& token : delta.logprobs) bytes += 64 * (1 + token.top.size());
  return bytes;
}

}  // namespace

void SendError(http::Response& response, const absl::Status& error, const std::string& request_id) {
  const ApiError api_error = ApiError::FromStatus(error);
  http::Headers headers = JsonHeaders(request_id);
  if (api_error.retry_after.has_value()) {
    headers["Retry-After"] = absl::StrCat(absl::ToInt64Seconds(*api_error.retry_after));
  }
  if (api_error.http_status == 401) headers["WWW-Authenticate"] = "Bearer";
  response.Send(api_error.http_status, headers, api_error.ToJson());
}

// ---- whole answers

CollectingOutput::CollectingOutput(AnswerParts parts) : parts_(std::move(parts)) {
  choices_.resize(parts_.request->num_choices());
}

bool CollectingOutput::OnDelta(ChoiceDelta delta) {
  if (parts_.response->closed()) return false;
  ChoiceDelta& choice = choices_[delta.index];
  if (delta.first) {
    choice = std::move(delta);
  } else {
    choice.Merge(std::move(delta));
  }
  return true;
}

void CollectingOutput::OnDone(const Usage& usage) {
  parts_.response->Send(200, JsonHeaders(parts_.request_id), parts_.format->Body(choices_, usage));
}

void CollectingOutput::OnFailed(const absl::Status& status) {
  SendError(*parts_.response, status, parts_.request_id);
}

// ---- streams

StreamingOutput::StreamingOutput(AnswerParts parts, std::size_t max_unread_bytes)
    : parts_(std::move(parts)), max_unread_bytes_(max_unread_bytes) {}

void StreamingOutput::ListenForDrains() {
  parts_.response->OnDrained([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnDrained();
  });
}

void StreamingOutput::StartIfNeeded() {
  if (std::exchange(started_, true)) return;
  parts_.response->Start(200, {{"Content-Type", "text/event-stream; charset=utf-8"},
                               {"Cache-Control", "no-cache"},
                               {"X-Accel-Buffering", "no"},
                               {"X-Request-Id", parts_.request_id}});
}

bool StreamingOutput::OnDelta(ChoiceDelta delta) {
  absl::MutexLock lock(&mutex_);
  http::Response& response = *parts_.response;
  if (over_ || response.closed()) return false;
  const bool reader_is_ready = !started_ || response.buffered_bytes() == 0;
  StartIfNeeded();
  pending_bytes_ += WireBytes(delta);
  const auto [it, inserted] = pending_.try_emplace(delta.index);
  if (inserted) {
    it->second = std::move(delta);
  } else {
    it->second.Merge(std::move(delta));
  }
  if (reader_is_ready) {
    Flush();
    return true;
  }
  if (pending_bytes_ + response.buffered_bytes() <= max_unread_bytes_) return true;
  WriteErrorAndEnd(absl::ResourceExhaustedError(
      absl::StrCat("the client reads too slowly: more than ", max_unread_bytes_,
                   " bytes of the stream are unread; read faster or do not stream")));
  return false;
}

void StreamingOutput::OnDone(const Usage& usage) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(over_, true)) return;
  StartIfNeeded();
  std::string events;
  for (const auto& [index, delta] : pending_) parts_.format->AppendEvents(delta, events);
  pending_.clear();
  if (parts_.request->answer.include_usage) parts_.format->AppendUsageEvent(usage, events);
  events += "data: [DONE]\n\n";
  parts_.response->Write(std::move(events));
  parts_.response->End();
}

void StreamingOutput::OnFailed(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (over_) return;
  if (!started_) {
    over_ = true;
    SendError(*parts_.response, status, parts_.request_id);
    return;
  }
  Flush();
  WriteErrorAndEnd(status);
}

void StreamingOutput::WriteErrorAndEnd(const absl::Status& status) {
  over_ = true;
  pending_.clear();
  parts_.response->Write(absl::StrCat("data: ", ApiError::FromStatus(status).ToJson(), "\n\n"));
  parts_.response->End();
}

void StreamingOutput::Flush() {
  if (pending_.empty()) return;
  std::string events;
  for (const auto& [index, delta] : pending_) parts_.format->AppendEvents(delta, events);
  pending_.clear();
  pending_bytes_ = 0;
  parts_.response->Write(std::move(events));
}

void StreamingOutput::OnDrained() {
  absl::MutexLock lock(&mutex_);
  if (!over_) Flush();
}

}  // namespace baton::router
