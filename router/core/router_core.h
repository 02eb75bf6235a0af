#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/bounded_queue.h"
#include "common/clock.h"
#include "router/core/dispatcher.h"
#include "session/session_server.h"

namespace baton::router {

// Runs a dispatcher on a thread of its own, so that it needs no lock: doors and the session server
// hand their events over through one bounded queue. Thread-safe.
//
// The queue's upper half is kept for what must not be lost (cancels, ended sessions), of which
// there are never more than requests and workers; messages beyond the lower half end their session,
// submissions beyond it are refused.
class RouterCore final : private WorkerOutbox {
 public:
  struct Options {
    DispatcherOptions dispatcher;
    std::string policy = "least-loaded";
    PlacementOptions placement;
    // Called on the core's thread when it becomes possible, or impossible, to place a request.
    std::function<void(bool ready)> on_readiness;
    // Called on the core's thread after events, at most every 100 ms, to bring gauges up to date.
    std::function<void(const Dispatcher&)> on_tick;
  };

  //   kInvalidArgument  no such placement policy
  static absl::StatusOr<std::unique_ptr<RouterCore>> Create(Options options, const Clock& clock,
                                                            DispatchObserver& observer);
  ~RouterCore() override;

  // Opens the session endpoint for workers and starts the thread. To be called once.
  //   kUnavailable  the address cannot be bound
  absl::Status Start(const std::string& session_address);
  int session_port() const { return server_->port(); }

  // Ends every request with `status`, tells their sinks, and stops the thread. Later events are
  // ignored. Sessions stay open until destruction.
  void Stop(const absl::Status& status);

  RequestKey NewKey() { return next_key_.fetch_add(1, std::memory_order_relaxed); }
  // Hands sequences to the dispatcher. `on_refused` is called on the core's thread if they are not
  // admitted; when this returns an error (the core is overwhelmed or stopped) nothing is called.
  absl::Status Submit(RequestKey key, std::vector<SequenceRequest> sequences,
                      std::function<void(const absl::Status&)> on_refused);
  void Cancel(RequestKey key);
  // Runs `look` on the core's thread; dropped when the core is overwhelmed or stopped. Must be
  // brief.
  void Inspect(absl::AnyInvocable<void(const Dispatcher&)> look);
  void StartDraining();

  bool ready() const { return ready_.load(std::memory_order_relaxed); }
  int num_sequences() const { return num_sequences_.load(std::memory_order_relaxed); }

 private:
  using Event = absl::AnyInvocable<void(Dispatcher&)>;

  RouterCore(Options options, const Clock& clock, std::unique_ptr<PlacementPolicy> policy,
             DispatchObserver& observer);

  void Send(SessionId session, session::RouterMessage message) override;
  void Close(SessionId session) override;

  bool PushLossy(Event event);
  void PushKept(Event event);
  session::SessionServer::Callbacks SessionCallbacks();
  void Run();
  void UpdateReadiness();

  const Options options_;
  const Clock& clock_;
  const std::unique_ptr<PlacementPolicy> policy_;
  Dispatcher dispatcher_;  // touched on thread_ only
  BoundedQueue<Event> events_;
  std::atomic<RequestKey> next_key_{1};
  std::atomic<bool> ready_{false};
  std::atomic<int> num_sequences_{0};
  std::thread thread_;
  std::unique_ptr<session::SessionServer> server_;  // last: its callbacks use what stands above
};

}  // namespace baton::router
