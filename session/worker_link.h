#pragma once
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "session/messages.h"

namespace baton::session {

// A worker's end of its session with one router. Dials, says Hello, and after a loss dials again
// with a growing, jittered pause (at most 2 s) until destroyed. Thread-safe.
class WorkerLink {
 public:
  struct Options {
    std::string router_address;  // host:port of the router's session endpoint
    Hello hello;
    // How many messages may wait to be written; beyond it the session is broken off and redialled,
    // since a router that reads so slowly cannot serve its clients either.
    int max_pending = 4096;
    absl::Duration connect_timeout = absl::Seconds(5);
  };
  struct Callbacks {
    // All are called on the link's own threads, one at a time per link; they must not block.
    // `session` counts this link's connections: messages of an older session are void.
    std::function<void(int session, const Welcome&)> on_connected;
    std::function<void(int session, RouterMessage)> on_message;
    std::function<void(int session)> on_disconnected;
    std::function<WorkerLoad()> load;  // asked once per heartbeat
  };
  static std::unique_ptr<WorkerLink> Start(Options options, Callbacks callbacks);
  // Ends the session; no callback runs after the destructor returns.
  virtual ~WorkerLink() = default;

  // Queues `message` for the router if `session` is the current one and connected; else drops it.
  virtual void Send(int session, WorkerMessage message) = 0;
  virtual bool connected() const = 0;
};

}  // namespace baton::session
