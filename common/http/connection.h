#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/http/server.h"

namespace baton::http {

class ResponseState;

// One client connection: reads requests with Beast's parser, hands them to the handler, writes the
// answers in order. Everything but Flush runs on its strand. While an answer is under way one read
// stays outstanding, so that a client that goes away is noticed at once.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket =
      boost::asio::basic_stream_socket<boost::asio::ip::tcp,
                                       boost::asio::strand<boost::asio::io_context::executor_type>>;

  Connection(Socket socket, const ServerOptions& options, const Handler& handler,
             std::function<void(Connection*)> on_closed);

  // Any thread.
  void Start();
  // Writes 503 and closes: the server has too many connections. Any thread.
  void RefuseAndClose();
  // Tells the strand that the current response has something to write or has ended. Any thread.
  void Flush();
  // Closes the socket. Any thread.
  void Close();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void ReadHeader();
  void ReadBody();
  void Dispatch();
  void WatchForClose();
  void OnWatched(const boost::system::error_code& error, std::size_t size);
  void DoFlush();
  void OnWritten(const boost::system::error_code& error);
  void AnswerAndClose(int status, const std::string& message);
  void NextRequest();
  void FinishAndClose();
  void Drain();
  void Shutdown();
  void ExpireAfter(absl::Duration timeout);

  Socket socket_;
  const ServerOptions& options_;
  const Handler& handler_;
  const std::function<void(Connection*)> on_closed_;
  boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                    boost::asio::wait_traits<std::chrono::steady_clock>,
                                    boost::asio::strand<boost::asio::io_context::executor_type>>
      timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<ResponseState> response_;  // of the request being answered, else null
  std::string writing_;                      // bytes given to the socket
  bool write_in_flight_ = false;
  bool watch_in_flight_ = false;
  bool keep_alive_ = false;
  bool finishing_ =
      false;  // the last answer is out: input is read and dropped until the client ends
  bool closed_ = false;
};

// The thread-safe half of an answer: collects bytes from any thread until the strand writes them.
class ResponseState final : public Response {
 public:
  ResponseState(std::weak_ptr<Connection> connection, bool head_only, bool keep_alive, bool http10);

  void Send(int status, const Headers& headers, std::string body) override;
  void Start(int status, const Headers& headers) override;
  void Write(std::string chunk) override;
  void End() override;
  std::size_t buffered_bytes() const override;
  bool closed() const override;
  void OnGone(std::function<void()> callback) override;
  void OnDrained(std::function<void()> callback) override;

  // For Connection: takes what is to be written now, and whether the answer is then complete.
  std::string TakePending(bool* complete);
  // The socket took `size` bytes.
  void Written(std::size_t size);
  // The connection is gone.
  void Gone();
  bool keep_alive() const;

 private:
  void AppendHead(int status, const Headers& headers, std::optional<std::size_t> content_length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Notify();

  const std::weak_ptr<Connection> connection_;
  const bool head_only_;
  const bool http10_;
  mutable absl::Mutex mutex_;
  bool keep_alive_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::string pending_ ABSL_GUARDED_BY(mutex_);
  std::size_t in_flight_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> on_gone_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_drained_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::http
