#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::http {

struct Request {
  std::string method;                          // "GET"
  std::string path;                            // decoded, without the query: "/v1/models"
  std::map<std::string, std::string> query;    // decoded
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string remote;  // peer's address
  absl::Time received;
};

using Headers = std::map<std::string, std::string>;

// The answer to one request: either Send once, or Start, Write..., End. Shared between the server
// and the handler; every method may be called from any thread and never blocks; calls after the
// client went away do nothing.
class Response {
 public:
  virtual ~Response() = default;
  virtual void Send(int status, const Headers& headers, std::string body) = 0;
  // Begins a chunked body (SSE streams).
  virtual void Start(int status, const Headers& headers) = 0;
  virtual void Write(std::string chunk) = 0;
  virtual void End() = 0;
  // Bytes given to Write that the socket has not taken yet; the writer's means of backpressure.
  virtual std::size_t buffered_bytes() const = 0;
  virtual bool closed() const = 0;  // ended, or the client is gone
  // Called once, on a server thread, if the client goes away before the answer is complete (at once
  // when it already has). Set at most one.
  virtual void OnGone(std::function<void()> callback) = 0;
  // Called on a server thread each time buffered_bytes() returns to 0. Set at most one.
  virtual void OnDrained(std::function<void()> callback) = 0;
};

// Called on a server thread per request; must not block. Keep the pointer to answer later.
using Handler = std::function<void(Request request, std::shared_ptr<Response> response)>;

struct ServerOptions {
  std::string host = "0.0.0.0";
  int port = 0;  // 0 picks one
  int num_threads = 1;
  std::size_t max_body_bytes = 32u << 20;           // beyond it: 413
  std::size_t max_header_bytes = 64u << 10;         // beyond it: 431
  int max_connections = 4096;                       // beyond it: accepted, answered 503, closed
  absl::Duration idle_timeout = absl::Seconds(75);  // of a kept-alive connection between requests
  absl::Duration read_timeout = absl::Seconds(30);  // for the whole of a request once it began
};

// HTTP/1.1 with keep-alive and chunked streaming, for the router's door and every process's
// metrics. One answer at a time per connection, in order. Thread-safe.
class Server {
 public:
  //   kUnavailable  the address cannot be bound; names host and port
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, Handler handler);
  // Closes every connection and joins the threads.
  virtual ~Server() = default;
  virtual int port() const = 0;
  // Stops accepting; open answers go on.
  virtual void StopAccepting() = 0;
  virtual int num_connections() const = 0;
};

}  // namespace baton::http
