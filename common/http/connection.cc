#include "common/http/connection.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/http/url.h"

namespace baton::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

// How long a client may leave a socket full before its connection is closed.
constexpr absl::Duration kWriteStall = absl::Seconds(60);
// How long a client may take to read a last answer and to stop sending.
constexpr absl::Duration kLinger = absl::Seconds(5);

}  // namespace

Connection::Connection(Socket socket, const ServerOptions& options, const Handler& handler,
                       std::function<void(Connection*)> on_closed)
    : socket_(std::move(socket)),
      options_(options),
      handler_(handler),
      on_closed_(std::move(on_closed)),
      timer_(socket_.get_executor()) {}

void Connection::Start() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->ReadHeader(); });
}

void Connection::RefuseAndClose() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->AnswerAndClose(503, "too many connections; retry later");
  });
}

void Connection::Flush() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->DoFlush(); });
}

void Connection::Close() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Shutdown(); });
}

void Connection::ExpireAfter(absl::Duration timeout) {
  timer_.expires_after(absl::ToChronoMilliseconds(timeout));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->Shutdown();
  });
}

void Connection::ReadHeader() {
  if (closed_) return;
  parser_.emplace();
  parser_->body_limit(options_.max_body_bytes);
  parser_->header_limit(static_cast<std::uint32_t>(options_.max_header_bytes));
  ExpireAfter(buffer_.size() == 0 ? options_.idle_timeout : options_.read_timeout);
  beast::http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
        if (self->closed_) return;
        if (error == beast::http::error::header_limit) {
          return self->AnswerAndClose(431, "request header too large");
        }
        if (error == beast::http::error::body_limit) {
          return self->AnswerAndClose(413, "request body too large");
        }
        if (error && error.category() == beast::http::make_error_code({}).category() &&
            error != beast::http::error::end_of_stream &&
            error != beast::http::error::partial_message) {
          return self->AnswerAndClose(400, "malformed HTTP request: " + error.message());
        }
        if (error) return self->Shutdown();
        self->ReadBody();
      });
}

void Connection::ReadBody() {
  ExpireAfter(options_.read_timeout);
  const auto expect = parser_->get()[beast::http::field::expect];
  if (beast::iequals(expect, "100-continue")) {
    // Small and first on an idle connection, so it fits the socket's buffer.
    writing_ = "HTTP/1.1 100 Continue\r\n\r\n";
    boost::system::error_code ignored;
    asio::write(socket_, asio::buffer(writing_), ignored);
  }
  beast::http::async_read(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
        if (self->closed_) return;
        if (error == beast::http::error::body_limit) {
          return self->AnswerAndClose(
              413, absl::StrFormat("request body too large: the limit is %d bytes",
                                   self->options_.max_body_bytes));
        }
        if (error) return self->Shutdown();
        self->Dispatch();
      });
}

void Connection::Dispatch() {
  timer_.cancel();
  auto message = parser_->release();
  keep_alive_ = message.keep_alive();
  Request request;
  request.received = absl::Now();
  request.method = std::string(message.method_string());
  if (!ParseTarget(std::string_view(message.target().data(), message.target().size()), &request)) {
    return AnswerAndClose(400, "malformed request target");
  }
  for (const auto& field : message) {
    request.headers[absl::AsciiStrToLower(absl::string_view(
        field.name_string().data(), field.name_string().size()))] = std::string(field.value());
  }
  request.body = std::move(message.body());
  boost::system::error_code ignored;
  request.remote = socket_.remote_endpoint(ignored).address().to_string();
  response_ = std::make_shared<ResponseState>(weak_from_this(), request.method == "HEAD",
                                              keep_alive_, message.version() < 11);
  WatchForClose();
  const auto response = response_;  // the handler may answer, and end, at once
  handler_(std::move(request), response);
}

void Connection::WatchForClose() {
  // A client that sends its next request early is read on, up to a bound, to see it go away.
  if (watch_in_flight_ || closed_ || buffer_.size() >= options_.max_header_bytes) return;
  watch_in_flight_ = true;
  socket_.async_read_some(
      buffer_.prepare(4096),
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t size) {
        self->watch_in_flight_ = false;
        self->OnWatched(error, size);
      });
}

void Connection::OnWatched(const boost::system::error_code& error, std::size_t size) {
  if (closed_) return;
  if (finishing_) return error ? Shutdown() : Drain();
  buffer_.commit(size);
  if (response_ == nullptr) {
    // The answer ended meanwhile. Cancelled means that the next request is in the buffer already.
    if (error && error != asio::error::operation_aborted) return Shutdown();
    return ReadHeader();
  }
  if (error) return Shutdown();
  WatchForClose();
}

void Connection::DoFlush() {
  if (closed_ || write_in_flight_ || response_ == nullptr) return;
  bool complete = false;
  writing_ = response_->TakePending(&complete);
  if (writing_.empty()) {
    if (complete) NextRequest();
    return;
  }
  write_in_flight_ = true;
  ExpireAfter(kWriteStall);
  asio::async_write(socket_, asio::buffer(writing_),
                    [self = shared_from_this()](const boost::system::error_code& error,
                                                std::size_t) { self->OnWritten(error); });
}

void Connection::OnWritten(const boost::system::error_code& error) {
  write_in_flight_ = false;
  if (closed_) return;
  if (error) return Shutdown();
  timer_.cancel();
  if (response_ != nullptr) response_->Written(writing_.size());
  DoFlush();
}

void Connection::NextRequest() {
  const bool keep = response_->keep_alive();
  response_.reset();
  if (!keep) return FinishAndClose();
  if (!watch_in_flight_) return ReadHeader();
  // The watching read is the next request's first, unless part of that was read already.
  ExpireAfter(options_.idle_timeout);
  if (buffer_.size() > 0) {
    boost::system::error_code ignored;
    socket_.cancel(ignored);
  }
}

void Connection::FinishAndClose() {
  // To close with input unread makes the kernel reset the connection, and the client may lose the
  // answer: say that we are done, then read on until it is.
  finishing_ = true;
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  ExpireAfter(kLinger);
  Drain();
}

void Connection::Drain() {
  if (closed_) return;
  buffer_.clear();
  if (watch_in_flight_) return;  // OnWatched comes back here
  socket_.async_read_some(
      buffer_.prepare(64 << 10),
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
        if (error) return self->Shutdown();
        self->Drain();
      });
}

void Connection::AnswerAndClose(int status, const std::string& message) {
  keep_alive_ = false;
  response_ = std::make_shared<ResponseState>(weak_from_this(), false, false, false);
  response_->Send(
      status, {{"Content-Type", "application/json"}},
      absl::StrFormat("{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,"
                      "\"code\":null}}\n",
                      message, status < 500 ? "invalid_request_error" : "server_error"));
}

void Connection::Shutdown() {
  if (closed_) return;
  closed_ = true;
  timer_.cancel();
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_both, ignored);
  socket_.close(ignored);
  if (response_ != nullptr) response_->Gone();
  response_.reset();
  on_closed_(this);
}

}  // namespace baton::http
