#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "router/core/dispatcher.h"

// What the dispatcher's tests put around it: an outbox that keeps what was sent, a sink that checks
// the rules of its calls, and an observer that keeps records.
namespace baton::router {

struct SentMessage {
  SessionId session;
  session::RouterMessage message;
};

class FakeOutbox final : public WorkerOutbox {
 public:
  void Send(SessionId session, session::RouterMessage message) override {
    sent.push_back({session, std::move(message)});
  }
  void Close(SessionId session) override { closed.push_back(session); }

  // The messages of one type sent to `session`, oldest first.
  template <class Message>
  std::vector<Message> SentTo(SessionId session) const {
    std::vector<Message> found;
    for (const SentMessage& entry : sent) {
      const Message* message = std::get_if<Message>(&entry.message);
      if (entry.session == session && message != nullptr) found.push_back(*message);
    }
    return found;
  }

  std::vector<SentMessage> sent;
  std::vector<SessionId> closed;
};

class RecordingSink final : public SequenceSink {
 public:
  bool OnTokens(const NewTokens& news) override {
    called_after_end |= ended();
    for (const SampledToken& token : news.tokens) tokens.push_back(token.token);
    for (const SampledToken& token : news.prompt_logprobs) prompt_logprobs.push_back(token.token);
    finish = news.finish;
    stopped = stop_after > 0 && static_cast<int>(tokens.size()) >= stop_after;
    return !stopped;
  }
  void OnFailed(const absl::Status& status) override {
    called_after_end |= ended();
    failure = status;
  }
  bool ended() const { return finish != FinishReason::kNone || stopped || !failure.ok(); }

  int stop_after = 0;  // tokens, 0 = never
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  bool stopped = false;
  absl::Status failure;
  bool called_after_end = false;
};

class RecordingObserver final : public DispatchObserver {
 public:
  void OnWorkerOpened(const Worker&) override { ++num_opened; }
  void OnWorkerLost(const Worker&, std::string_view) override { ++num_lost; }
  void OnTokens(absl::Duration, int num_tokens) override { num_later_tokens += num_tokens; }
  void OnRefused(const absl::Status& status) override { refusals.push_back(status); }
  void OnEnded(const SequenceRecord& record) override { ended.push_back(record); }
  void OnSettled(const SequenceRecord& record) override { settled.push_back(record); }

  int num_opened = 0;
  int num_lost = 0;
  int num_later_tokens = 0;
  std::vector<absl::Status> refusals;
  std::vector<SequenceRecord> ended;
  std::vector<SequenceRecord> settled;
};

inline session::Hello MakeHello(std::string id, session::WorkerRole role) {
  session::Hello hello;
  hello.worker_id = std::move(id);
  hello.incarnation = 1;
  hello.role = role;
  hello.fingerprint.model = "m";
  hello.cut.block_size = 16;
  hello.max_context = 1000;
  hello.num_blocks = 100;
  return hello;
}

inline SequenceRequest MakeSequence(std::shared_ptr<SequenceSink> sink, absl::Time arrival,
                                    int num_prompt_tokens = 20, int max_tokens = 8) {
  SequenceRequest request;
  request.request_id = "r";
  request.prompt.assign(num_prompt_tokens, 7);
  request.sampling.max_tokens = max_tokens;
  request.arrival = arrival;
  request.deadline = arrival + absl::Seconds(60);
  request.sink = std::move(sink);
  return request;
}

inline session::TokenOutput MakeOutput(const std::string& id, int first_position,
                                       std::vector<std::int32_t> tokens,
                                       FinishReason finish = FinishReason::kNone) {
  session::TokenOutput output;
  output.request_id = id;
  output.first_position = first_position;
  for (const std::int32_t token : tokens) output.tokens.push_back({token, 0.0f, {}});
  output.finish = finish;
  return output;
}

inline session::StepOutputs MakeStep(session::TokenOutput output) {
  session::StepOutputs step;
  step.outputs.push_back(std::move(output));
  return step;
}

inline absl::Duration SumOfPhases(const Timeline& timeline) {
  absl::Duration sum;
  for (const absl::Duration phase : timeline.Phases()) sum += phase;
  return sum;
}

}  // namespace baton::router
