#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/http/http_front.h"

namespace baton::router {

// The gRPC door: baton.v1.Generation, the standard health service (names "" and
// "baton.v1.Generation" serve when requests can be placed) and reflection. Thread-safe.
class GrpcFront {
 public:
  // Listens on host:port; port 0 picks one. The context's references must outlive the front.
  //   kUnavailable  the address cannot be bound
  static absl::StatusOr<std::unique_ptr<GrpcFront>> Start(DoorContext context,
                                                          const std::string& host, int port);
  // Cancels open calls and waits for their reactors.
  virtual ~GrpcFront() = default;

  virtual void SetServing(bool serving) = 0;
  // Takes no new calls; open ones go on for at most `grace`.
  virtual void Shutdown(absl::Duration grace) = 0;
  virtual int port() const = 0;
};

}  // namespace baton::router
