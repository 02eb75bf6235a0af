#include "router/core/worker_registry.h"

#include <utility>

namespace baton::router {

std::optional<SessionId> WorkerRegistry::Add(SessionId session, session::Hello hello,
                                             absl::Time now) {
  std::optional<SessionId> replaced;
  for (const auto& [other, worker] : workers_) {
    if (other != session && worker.hello.worker_id == hello.worker_id) replaced = other;
  }
  Worker worker;
  worker.session = session;
  worker.hello = std::move(hello);
  // Until the first heartbeat the whole pool counts as free.
  worker.load.blocks.free = worker.load.blocks.total = worker.hello.num_blocks;
  worker.last_heard = now;
  workers_[session] = std::move(worker);
  return replaced;
}

void WorkerRegistry::Heard(SessionId session, absl::Time now) {
  if (Worker* worker = Find(session)) worker->last_heard = now;
}

void WorkerRegistry::Heard(SessionId session, const session::WorkerLoad& load, absl::Time now) {
  if (Worker* worker = Find(session)) {
    worker->last_heard = now;
    worker->load = load;
  }
}

std::vector<SessionId> WorkerRegistry::FindSilent(absl::Time now) const {
  std::vector<SessionId> silent;
  for (const auto& [session, worker] : workers_) {
    if (now - worker.last_heard > silence_limit_) silent.push_back(session);
  }
  return silent;
}

Worker* WorkerRegistry::Find(SessionId session) {
  const auto it = workers_.find(session);
  return it == workers_.end() ? nullptr : &it->second;
}

const Worker* WorkerRegistry::Find(SessionId session) const {
  const auto it = workers_.find(session);
  return it == workers_.end() ? nullptr : &it->second;
}

WorkerCounts WorkerRegistry::Count() const {
  WorkerCounts counts;
  for (const auto& [session, worker] : workers_) {
    if (worker.prefills()) {
      ++counts.num_prefill;
    } else if (worker.does_both()) {
      ++counts.num_both;
    } else {
      ++counts.num_decode;
    }
    if (worker.load.draining) ++counts.num_draining;
  }
  return counts;
}

}  // namespace baton::router
