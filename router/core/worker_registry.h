#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "session/messages.h"
#include "session/session_server.h"

namespace baton::router {

using session::SessionId;

// One registered worker as this router sees it: what it said of itself, what it last reported, and
// what this router has given it since. Heartbeats lag, so placement looks at both.
struct Worker {
  SessionId session = 0;
  session::Hello hello;
  session::WorkerLoad load;  // of the last heartbeat
  absl::Time last_heard;
  int num_sequences = 0;                   // of this router's, that may hold something there
  std::int64_t num_unanswered_tokens = 0;  // prompt tokens sent there whose first token is awaited

  bool prefills() const { return hello.role == session::WorkerRole::kPrefill; }
  bool decodes() const { return hello.role != session::WorkerRole::kPrefill; }
  bool does_both() const { return hello.role == session::WorkerRole::kBoth; }
};

struct WorkerCounts {
  int num_prefill = 0;
  int num_decode = 0;
  int num_both = 0;
  int num_draining = 0;  // counted in its role too
};

// The workers whose session is open. Soft state: rebuilt from their Hellos and heartbeats after a
// restart. Not thread-safe; lives on the router core's thread.
class WorkerRegistry {
 public:
  // A worker that says nothing for `silence_limit` is lost.
  explicit WorkerRegistry(absl::Duration silence_limit) : silence_limit_(silence_limit) {}

  // Takes in a worker. Returns the session of an older registration under the same worker id, which
  // is void now: the worker restarted or redialled.
  std::optional<SessionId> Add(SessionId session, session::Hello hello, absl::Time now);
  void Remove(SessionId session) { workers_.erase(session); }

  // Notes a sign of life; a heartbeat brings the load with it.
  void Heard(SessionId session, absl::Time now);
  void Heard(SessionId session, const session::WorkerLoad& load, absl::Time now);

  // The sessions of workers that have been silent for too long.
  std::vector<SessionId> FindSilent(absl::Time now) const;

  // nullptr when the session is not registered. Valid until the next Add or Remove.
  Worker* Find(SessionId session);
  const Worker* Find(SessionId session) const;

  const std::map<SessionId, Worker>& workers() const { return workers_; }
  WorkerCounts Count() const;

 private:
  const absl::Duration silence_limit_;
  std::map<SessionId, Worker> workers_;
};

}  // namespace baton::router
