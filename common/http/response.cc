#include <boost/beast/http/status.hpp>

#include "absl/strings/str_format.h"
#include "common/http/connection.h"

namespace baton::http {

ResponseState::ResponseState(std::weak_ptr<Connection> connection, bool head_only, bool keep_alive,
                             bool http10)
    : connection_(std::move(connection)),
      head_only_(head_only),
      http10_(http10),
      keep_alive_(keep_alive) {}

void ResponseState::AppendHead(int status, const Headers& headers,
                               std::optional<std::size_t> content_length) {
  const auto reason =
      boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(status));
  pending_ += absl::StrFormat("HTTP/1.1 %d %s\r\n", status,
                              absl::string_view(reason.data(), reason.size()));
  for (const auto& [name, value] : headers) {
    pending_ += name;
    pending_ += ": ";
    pending_ += value;
    pending_ += "\r\n";
  }
  if (content_length.has_value()) {
    pending_ += absl::StrFormat("Content-Length: %d\r\n", *content_length);
  } else if (http10_) {
    keep_alive_ = false;  // HTTP/1.0 knows no chunks: the end of the connection ends the body
  } else {
    pending_ += "Transfer-Encoding: chunked\r\n";
  }
  pending_ += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void ResponseState::Send(int status, const Headers& headers, std::string body) {
  {
    absl::MutexLock lock(&mutex_);
    if (started_ || gone_) return;
    started_ = complete_ = true;
    AppendHead(status, headers, body.size());
    if (!head_only_) pending_ += body;
  }
  Notify();
}

void ResponseState::Start(int status, const Headers& headers) {
  {
    absl::MutexLock lock(&mutex_);
    if (started_ || gone_) return;
    started_ = true;
    AppendHead(status, headers, std::nullopt);
  }
  Notify();
}

void ResponseState::Write(std::string chunk) {
  if (chunk.empty()) return;  // an empty chunk would end the body
  {
    absl::MutexLock lock(&mutex_);
    if (!started_ || complete_ || gone_ || head_only_) return;
    if (http10_) {
      pending_ += chunk;
    } else {
      pending_ += absl::StrFormat("%x\r\n", chunk.size());
      pending_ += chunk;
      pending_ += "\r\n";
    }
  }
  Notify();
}

void ResponseState::End() {
  {
    absl::MutexLock lock(&mutex_);
    if (!started_ || complete_ || gone_) return;
    complete_ = true;
    if (!head_only_ && !http10_) pending_ += "0\r\n\r\n";
  }
  Notify();
}

void ResponseState::Notify() {
  if (const auto connection = connection_.lock()) connection->Flush();
}

std::size_t ResponseState::buffered_bytes() const {
  absl::MutexLock lock(&mutex_);
  return pending_.size() + in_flight_bytes_;
}

bool ResponseState::closed() const {
  absl::MutexLock lock(&mutex_);
  return gone_ || complete_;
}

bool ResponseState::keep_alive() const {
  absl::MutexLock lock(&mutex_);
  return keep_alive_;
}

void ResponseState::OnGone(std::function<void()> callback) {
  {
    absl::MutexLock lock(&mutex_);
    if (!gone_) {
      on_gone_ = std::move(callback);
      return;
    }
  }
  callback();
}

void ResponseState::OnDrained(std::function<void()> callback) {
  absl::MutexLock lock(&mutex_);
  on_drained_ = std::move(callback);
}

std::string ResponseState::TakePending(bool* complete) {
  absl::MutexLock lock(&mutex_);
  *complete = complete_;
  in_flight_bytes_ = pending_.size();
  return std::exchange(pending_, {});
}

void ResponseState::Written(std::size_t) {
  std::function<void()> drained;
  {
    absl::MutexLock lock(&mutex_);
    in_flight_bytes_ = 0;
    if (pending_.empty() && !complete_) drained = on_drained_;
  }
  if (drained) drained();
}

void ResponseState::Gone() {
  std::function<void()> gone;
  {
    absl::MutexLock lock(&mutex_);
    gone_ = true;
    pending_.clear();
    in_flight_bytes_ = 0;
    gone = std::exchange(on_gone_, nullptr);
    on_drained_ = nullptr;
  }
  if (gone) gone();
}

}  // namespace baton::http
