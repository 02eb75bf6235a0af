#pragma once
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/router_config.h"

namespace baton::router {

// A whole router: HTTP, gRPC and session endpoints over one core. Thread-safe.
class Router {
 public:
  // Loads the model's text side, binds the three ports and serves at once; it is ready when workers
  // have registered.
  //   kNotFound, kInvalidArgument, kFailedPrecondition  the model or a setting is unusable
  //   kUnavailable                                      a port cannot be bound
  static absl::StatusOr<std::unique_ptr<Router>> Start(const RouterConfig& config);
  // Stops as Stop does.
  virtual ~Router() = default;

  // Takes no new connection or request and waits until what runs is over, at most until `deadline`.
  // Returns whether everything ended by itself.
  virtual bool Drain(absl::Time deadline) = 0;
  // Ends what still runs with an error and closes every port. To be called once, or not at all.
  virtual void Stop() = 0;

  virtual int http_port() const = 0;
  virtual int grpc_port() const = 0;  // 0 when gRPC is off
  virtual int session_port() const = 0;
  // Whether a request could be placed now.
  virtual bool ready() const = 0;
};

}  // namespace baton::router
