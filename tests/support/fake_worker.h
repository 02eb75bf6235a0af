#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "session/worker_link.h"

namespace baton::testing {

class FakeWorker;

// Stands for the wire between fake prefill and decode workers of one process. Thread-safe.
class FakeHandoff {
 public:
  void Add(const std::string& worker_id, FakeWorker* decode);
  void Remove(const std::string& worker_id);
  // Tells the decode worker that its prompt has arrived; false when it is gone or has let go of it.
  bool Deliver(const std::string& worker_id, std::uint64_t transfer_id);

 private:
  absl::Mutex mutex_;
  std::map<std::string, FakeWorker*> workers_ ABSL_GUARDED_BY(mutex_);
};

// A worker without a model that speaks the real session stream: output token i of every sequence is
// script[i % script.size()], one per step; a token among the request's stop ids finishes it.
// Log-probabilities are -0.25 * (i + 1), of n-th best -n - 0.25 * (i + 1). Thread-safe.
class FakeWorker {
 public:
  struct Options {
    std::string id;
    session::WorkerRole role = session::WorkerRole::kBoth;
    int router_port = 0;
    std::string model_fingerprint;
    std::vector<std::int32_t> script;
    absl::Duration step = absl::Milliseconds(2);
    int max_context = 2048;
  };

  FakeWorker(Options options, FakeHandoff& handoff);
  // Goes without a word, as a killed process would.
  ~FakeWorker();

  // While paused it takes requests but computes nothing.
  void SetPaused(bool paused);
  // From now on every reservation fails with `status`; OK ends that.
  void RefuseWith(absl::Status status);
  void SetDraining(bool draining);
  // Requests it holds anything for.
  int num_held() const;
  std::int64_t num_tokens_sent() const;
  // The last request it was given.
  session::RequestSpec last_spec() const;

 private:
  friend class FakeHandoff;
  struct Held {
    session::RequestSpec spec;
    TransferTicket ticket;
    bool ready = false;  // its prompt is here
    int position = 0;    // of its next output token
    std::uint64_t transfer_id = 0;
  };

  ModelFingerprint Fingerprint() const;
  void OnMessage(int session, session::RouterMessage message);
  void Receive(session::Welcome&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {}
  void Receive(session::Reserve& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Receive(session::Prefill& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Receive(session::Cancel& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeDelivery(std::uint64_t transfer_id);
  void Run();
  void Step();
  session::TokenOutput NextOutput(const std::string& id, Held& held);

  const Options options_;
  FakeHandoff& handoff_;
  mutable absl::Mutex mutex_;
  int session_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Held> held_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_transfer_ ABSL_GUARDED_BY(mutex_) = 1;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  std::int64_t num_tokens_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  session::RequestSpec last_spec_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<session::WorkerLink> link_;
  std::thread thread_;
};

}  // namespace baton::testing
