#pragma once
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "session/messages.h"
#include "worker/scheduler.h"

namespace baton {

// Keeps what a scheduler sends to its routers. Not thread-safe.
class RecordingOutbox final : public worker::Outbox {
 public:
  struct Sent {
    worker::SessionKey to;
    session::WorkerMessage message;
  };

  void Send(worker::SessionKey to, session::WorkerMessage message) override {
    sent_.push_back({to, std::move(message)});
  }

  const std::vector<Sent>& sent() const { return sent_; }
  std::vector<Sent> Take() { return std::exchange(sent_, {}); }

  // The messages of type `Message` that name `request_id`, in order.
  template <class Message>
  std::vector<Message> Of(std::string_view request_id) const {
    std::vector<Message> found;
    for (const Sent& sent : sent_) {
      const auto* message = std::get_if<Message>(&sent.message);
      if (message != nullptr && message->request_id == request_id) found.push_back(*message);
    }
    return found;
  }
  // The outputs of `request_id` over all steps, in order.
  std::vector<session::TokenOutput> OutputsOf(std::string_view request_id) const {
    std::vector<session::TokenOutput> found;
    for (const Sent& sent : sent_) {
      const auto* step = std::get_if<session::StepOutputs>(&sent.message);
      if (step == nullptr) continue;
      for (const session::TokenOutput& output : step->outputs) {
        if (output.request_id == request_id) found.push_back(output);
      }
    }
    return found;
  }

 private:
  std::vector<Sent> sent_;
};

}  // namespace baton
