#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "session/messages.h"
#include "worker/admin_server.h"
#include "worker/engine_host.h"
#include "worker/metrics.h"
#include "worker/router_links.h"
#include "worker/scheduler.h"
#include "worker/step_loop.h"
#include "worker/timeline_store.h"
#include "worker/worker_config.h"

namespace baton::worker {

// Who this process is to its peers.
struct WorkerIdentity {
  std::string worker_id;
  std::uint64_t incarnation = 0;  // differs from every earlier process of the same id
};
// config.worker_id, or "<role>-<host name>-<pid>"; the incarnation is the start time.
WorkerIdentity MakeWorkerIdentity(const WorkerConfig& config, session::WorkerRole role);

// What cli sees of a running worker of either kind.
class Worker {
 public:
  virtual ~Worker() = default;
  // Takes nothing new, lets what runs finish until `deadline`, then ends the rest with
  // kUnavailable. True when everything finished in time. Blocks; the worker can only be destroyed
  // afterwards.
  virtual bool Drain(absl::Time deadline) = 0;
  // The model is loaded, a router is connected, and no drain began.
  virtual bool ready() const = 0;
  // OK, or why nothing can be computed any more: the process has to end.
  virtual absl::Status failure() const = 0;
  virtual session::WorkerLoad load() const = 0;
  virtual int admin_port() const = 0;
};

// What surrounds a scheduler in a worker process: the engine thread, the links to the routers, the
// admin server, metrics and timelines, and how to drain. Made first, so that the scheduler can be
// given its outbox, metrics and timelines; then started over the scheduler. Thread-safe.
class WorkerService {
 public:
  // `engine` and `clock` must outlive the service.
  WorkerService(const WorkerConfig& config, session::WorkerRole role,
                const WorkerIdentity& identity, EngineHost& engine, const Clock& clock);
  // Stop().
  ~WorkerService();

  Outbox& outbox() { return *links_; }
  WorkerMetrics& metrics() { return metrics_; }
  metrics::Registry& registry() { return registry_; }
  TimelineStore& timelines() { return timelines_; }
  // For transfer callbacks; never loses an event while the loop runs.
  void Post(Event event) { loop_.Post(std::move(event)); }

  // Opens the admin port, starts the engine thread over `scheduler` and dials the routers.
  // `scheduler` must outlive the service or its Stop.
  //   kUnavailable  the admin port cannot be bound
  absl::Status Start(Scheduler& scheduler);
  // Ends sessions, then the engine thread. Idempotent. Destroy TransferSender/Receiver after it:
  // their late callbacks find a closed queue.
  void Stop();

  bool Drain(absl::Time deadline);
  bool ready() const { return NotReady().empty(); }
  absl::Status failure() const { return loop_.failure(); }
  session::WorkerLoad load() const { return loop_.load(); }
  int admin_port() const { return admin_ == nullptr ? 0 : admin_->port(); }

 private:
  std::string NotReady() const;
  std::string State() const;

  const WorkerConfig config_;
  const session::WorkerRole role_;
  const WorkerIdentity identity_;
  const Clock& clock_;
  metrics::Registry registry_;
  WorkerMetrics metrics_;
  TimelineStore timelines_;
  StepLoop loop_;
  std::unique_ptr<RouterLinks> links_;
  std::unique_ptr<AdminServer> admin_;
  mutable absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::worker
