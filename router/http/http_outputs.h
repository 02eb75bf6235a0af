#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/http/server.h"
#include "router/generation/generation.h"
#include "router/http/answer_format.h"

namespace baton::router {

// Answers with `error` (see api_error.h), if nothing was answered yet.
void SendError(http::Response& response, const absl::Status& error, const std::string& request_id);

// What an answer is made of and where it goes.
struct AnswerParts {
  std::shared_ptr<http::Response> response;
  std::string request_id;
  std::shared_ptr<const PreparedRequest> request;  // the format refers to it
  std::unique_ptr<AnswerFormat> format;
};

// Collects the whole answer and sends it at the end. Called on the router core's thread only.
class CollectingOutput final : public GenerationOutput {
 public:
  explicit CollectingOutput(AnswerParts parts);
  bool OnDelta(ChoiceDelta delta) override;
  void OnDone(const Usage& usage) override;
  void OnFailed(const absl::Status& status) override;

 private:
  const AnswerParts parts_;
  std::vector<ChoiceDelta> choices_;
};

// Streams server-sent events. The status line goes out with the first token, so that an error
// before it still has its own status; a later error is an event `{"error": ...}`, after which the
// stream ends without [DONE]. While the client has not taken the previous write, deltas are merged
// per choice instead of written; one whose unread bytes pass `max_unread_bytes` is cut off with an
// error event. Deltas come on the core's thread, drains on HTTP threads: thread-safe.
class StreamingOutput final : public GenerationOutput,
                              public std::enable_shared_from_this<StreamingOutput> {
 public:
  StreamingOutput(AnswerParts parts, std::size_t max_unread_bytes);
  // Must be called once, after construction.
  void ListenForDrains();

  bool OnDelta(ChoiceDelta delta) override;
  void OnDone(const Usage& usage) override;
  void OnFailed(const absl::Status& status) override;

 private:
  void StartIfNeeded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteErrorAndEnd(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnDrained();

  const AnswerParts parts_;
  const std::size_t max_unread_bytes_;
  absl::Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::int32_t, ChoiceDelta> pending_ ABSL_GUARDED_BY(mutex_);  // by choice
  std::size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::router
