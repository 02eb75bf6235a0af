#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "session/messages.h"

namespace baton::session {

using SessionId = std::uint64_t;  // of one worker's stream; never reused within the process

// A router's end of the sessions with all workers: one gRPC server whose only service workers dial.
// Thread-safe.
class SessionServer {
 public:
  struct Options {
    std::string listen_address;  // host:port, port 0 picks one
    int max_pending = 4096;      // messages waiting for one worker; beyond it that session is ended
  };
  struct Callbacks {
    // Called on gRPC threads, in order and one at a time per session; they must not block.
    // on_open is called with the worker's Hello, on_closed exactly once after every on_open.
    std::function<void(SessionId, const Hello&)> on_open;
    std::function<void(SessionId, WorkerMessage)> on_message;
    std::function<void(SessionId)> on_closed;
  };
  //   kUnavailable  the address cannot be bound; names it
  static absl::StatusOr<std::unique_ptr<SessionServer>> Start(Options options, Callbacks callbacks);
  // Ends all sessions; no callback runs after the destructor returns.
  virtual ~SessionServer() = default;

  virtual void Send(SessionId session, RouterMessage message) = 0;  // dropped when closed
  virtual void Close(SessionId session) = 0;                        // e.g. after missed heartbeats
  virtual int port() const = 0;
};

}  // namespace baton::session
