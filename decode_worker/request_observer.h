#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "decode_worker/sequence.h"
#include "session/messages.h"

namespace baton::decode_worker {

enum class RefusalReason : std::uint8_t { kQueueFull, kDraining, kInvalid, kNoTransfers };
inline constexpr int kNumRefusalReasons = 4;

// Is told what becomes of requests: metrics and timelines in a worker, a recorder in tests. Called
// on the scheduler's thread; must not block nor call the scheduler.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  virtual void OnRefused(const session::RequestSpec& spec, RefusalReason reason,
                         const absl::Status& status) = 0;
  // `sequence.phase` began at `at`. The first of a request is kQueued.
  virtual void OnPhase(const Sequence& sequence, absl::Time at) = 0;
  // A step succeeded: rows computed, by kind, and tokens sampled.
  virtual void OnStep(int decode_rows, int prefill_rows, int output_tokens) = 0;
  // The request's first output here was made; `times` goes with it.
  virtual void OnFirstOutput(const Sequence& sequence, const session::PhaseTimes& times) = 0;
  // The request is over: OK when it finished, else why. Called once after each first OnPhase.
  virtual void OnEnd(const Sequence& sequence, const absl::Status& why, absl::Time at) = 0;
};

}  // namespace baton::decode_worker
