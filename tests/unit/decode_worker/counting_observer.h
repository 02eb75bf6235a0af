#pragma once
#include <map>
#include <string>
#include <vector>

#include "decode_worker/request_observer.h"

namespace baton::decode_worker {

// Counts what a scheduler says about its requests. Not thread-safe.
class CountingObserver final : public RequestObserver {
 public:
  void OnRefused(const session::RequestSpec&, RefusalReason reason, const absl::Status&) override {
    ++refused[reason];
  }
  void OnPhase(const Sequence& sequence, absl::Time) override {
    if (sequence.phase == Phase::kQueued) ++begun;
    if (sequence.phase == Phase::kPreempted) ++preemptions;
    phases[sequence.key.request_id].push_back(sequence.phase);
  }
  void OnStep(int decode, int prefill, int outputs) override {
    decode_rows += decode;
    prefill_rows += prefill;
    output_tokens += outputs;
  }
  void OnFirstOutput(const Sequence& sequence, const session::PhaseTimes&) override {
    ++first_outputs[sequence.key.request_id];
  }
  void OnEnd(const Sequence& sequence, const absl::Status& why, absl::Time) override {
    ++ended;
    ends[sequence.key.request_id].push_back(why);
  }

  int begun = 0;
  int ended = 0;
  int preemptions = 0;
  int decode_rows = 0;
  int prefill_rows = 0;
  int output_tokens = 0;
  std::map<RefusalReason, int> refused;
  std::map<std::string, std::vector<Phase>> phases;
  std::map<std::string, int> first_outputs;
  std::map<std::string, std::vector<absl::Status>> ends;
};

}  // namespace baton::decode_worker
