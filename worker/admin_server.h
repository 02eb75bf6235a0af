#pragma once
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/server.h"
#include "common/metrics.h"
#include "worker/timeline_store.h"

namespace baton::worker {

// A worker's HTTP side door:
//   /metrics             Prometheus text
//   /health              200 while the process lives
//   /ready               200 when the model is loaded, a router is connected and no drain began;
//                        else 503 with the reason
//   /debug/requests/ID   a recent request's timeline as JSON, or 404
//   /debug/state         what `state` returns
// Thread-safe.
class AdminServer {
 public:
  struct Options {
    std::string host = "0.0.0.0";
    int port = 0;
  };
  struct Sources {
    metrics::Registry* registry = nullptr;
    const TimelineStore* timelines = nullptr;
    std::function<std::string()> not_ready;  // why, or empty when ready
    std::function<std::string()> state;      // a JSON object
  };
  //   kUnavailable  the address cannot be bound
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const Options& options,
                                                            Sources sources);
  int port() const { return server_->port(); }

 private:
  explicit AdminServer(Sources sources) : sources_(std::move(sources)) {}
  void Handle(const http::Request& request, http::Response& response) const;
  const Sources sources_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace baton::worker
