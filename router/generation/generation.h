#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/core/sequence.h"
#include "router/generation/choice_text.h"
#include "router/generation/prepared_request.h"
#include "router/served_model.h"

namespace baton::router {

struct Usage {
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_completion_tokens = 0;
};

// Where the answer to one request goes: a door's side of it. Called on the router core's thread,
// one call at a time; must not block. OnDone or OnFailed is the last call.
class GenerationOutput {
 public:
  virtual ~GenerationOutput() = default;
  // False: the client is gone or too slow, nothing more is wanted.
  virtual bool OnDelta(ChoiceDelta delta) = 0;
  virtual void OnDone(const Usage& usage) = 0;
  virtual void OnFailed(const absl::Status& status) = 0;
};

// One request on its way: the sinks of its sequences on one side, one output on the other. Used on
// the router core's thread only, after construction; kept alive by its sinks.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `cancel_rest` ends the request's other sequences after one has failed; called at most once, and
  // must not call back at once. `model` must outlive the generation.
  Generation(std::shared_ptr<const PreparedRequest> request, const ServedModel& model,
             std::shared_ptr<GenerationOutput> output, std::function<void()> cancel_rest);

  // The request's sequences, ready to dispatch, with sinks that lead here. To be called once.
  std::vector<SequenceRequest> MakeSequences(const std::string& request_id, absl::Time arrival,
                                             absl::Time deadline);
  // Ends the whole request, for example because it was not admitted.
  void Fail(const absl::Status& status);

  const PreparedRequest& request() const { return *request_; }

 private:
  class ChoiceSink;

  bool OnTokens(int choice, const NewTokens& news);

  const std::shared_ptr<const PreparedRequest> request_;
  const ServedModel& model_;
  const std::shared_ptr<GenerationOutput> output_;
  const std::function<void()> cancel_rest_;
  std::vector<ChoiceText> choices_;
  int num_open_ = 0;  // choices that are not finished
  bool over_ = false;
};

}  // namespace baton::router
