#pragma once
#include <utility>

#include "absl/container/btree_map.h"
#include "session/messages.h"
#include "worker/events.h"
#include "worker/scheduler.h"

namespace baton::worker {

// Gathers the tokens of one engine step, so that each router gets one message per step and not one
// per token. Not thread-safe.
class OutputBatch {
 public:
  void Add(SessionKey to, session::TokenOutput output) {
    by_session_[to].outputs.push_back(std::move(output));
  }
  // Sends what was gathered, one StepOutputs per session, and is empty again.
  void Flush(Outbox& outbox) {
    for (auto& [session, outputs] : by_session_) outbox.Send(session, std::move(outputs));
    by_session_.clear();
  }

 private:
  absl::btree_map<SessionKey, session::StepOutputs> by_session_;
};

}  // namespace baton::worker
