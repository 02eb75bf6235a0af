#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "session/messages.h"
#include "session/worker_link.h"
#include "worker/events.h"
#include "worker/scheduler.h"
#include "worker/step_loop.h"

namespace baton::worker {

// This worker's sessions with all routers. Turns what they bring into events of the StepLoop: a
// request that finds the queue full is refused here, a lost session becomes SessionLost.
// Thread-safe.
class RouterLinks final : public Outbox {
 public:
  struct Options {
    std::vector<std::string> routers;  // host:port each
    session::Hello hello;
  };
  // `loop` must outlive this.
  RouterLinks(Options options, StepLoop& loop, const Clock& clock);
  // Stop().
  ~RouterLinks() override;

  // Dials every router, telling it `admin_address` in the Hello. Until then Send drops.
  void Start(const std::string& admin_address);
  // Ends every session, delivering what was sent; nothing is posted afterwards. The loop must still
  // run: the sessions' ends are posted to it. Idempotent.
  void Stop();

  void Send(SessionKey to, session::WorkerMessage message) override;
  // Tells every router the load now, ahead of the next heartbeat (a drain began).
  void BroadcastLoad();
  int num_connected() const;

 private:
  session::WorkerLink::Callbacks CallbacksFor(int link);
  void OnConnected(SessionKey session, const session::Welcome& welcome);
  void OnMessage(SessionKey from, session::RouterMessage message);
  void OnDisconnected(SessionKey session);

  const Options options_;
  StepLoop& loop_;
  const Clock& clock_;
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<session::WorkerLink>> links_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> sessions_ ABSL_GUARDED_BY(mutex_);  // by link: the accepted session, or -1
};

}  // namespace baton::worker
