#pragma once
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "baton/v1/generate.pb.h"
#include "router/generation/generation.h"

namespace baton::router {

// One Generate call: takes deltas on the core's thread and writes them to its reactor, one write in
// flight at a time, merging what comes meanwhile. Outlives the reactor when the client goes first.
// Thread-safe.
class GenerateCall final : public GenerationOutput,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  GenerateCall(std::string request_id, std::size_t max_unread_bytes)
      : request_id_(std::move(request_id)), max_unread_bytes_(max_unread_bytes) {}

  // The reactor that gRPC drives; it deletes itself. To be called once.
  grpc::ServerWriteReactor<v1::GenerateResponse>* MakeReactor();
  // What the first message tells of the prompt. Before any delta.
  void SetPromptTokens(std::vector<std::int32_t> tokens);
  // Called when the client cancels or its deadline passes; at once when that has happened.
  void SetCancel(std::function<void()> cancel);
  bool over() const;

  bool OnDelta(ChoiceDelta delta) override;
  void OnDone(const Usage& usage) override;
  void OnFailed(const absl::Status& status) override;

 private:
  class Reactor;

  void OnWriteDone(bool ok);
  void OnCancelled();
  void OnReactorGone();
  // Writes the next message or finishes, if nothing is in flight.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string request_id_;
  const std::size_t max_unread_bytes_;
  mutable absl::Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_) = nullptr;    // nullptr once gRPC is done with it
  v1::GenerateResponse writing_ ABSL_GUARDED_BY(mutex_);  // stays untouched while in flight
  bool in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::int32_t, ChoiceDelta> pending_ ABSL_GUARDED_BY(mutex_);  // by choice
  std::size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Usage> usage_ ABSL_GUARDED_BY(mutex_);          // to be written last
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mutex_);  // to finish with, after that
  std::vector<std::int32_t> prompt_tokens_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> cancel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
