#include "router/core/timeline.h"

#include <algorithm>

#include "common/check.h"

namespace baton::router {
namespace {

// Takes min(reported, rest) out of `rest`.
absl::Duration Take(absl::Duration reported, absl::Duration& rest) {
  const absl::Duration taken = std::clamp(reported, absl::ZeroDuration(), rest);
  rest -= taken;
  return taken;
}

void MergeOne(absl::Duration from, absl::Duration& into) {
  if (from != absl::ZeroDuration()) into = from;
}

}  // namespace

std::string_view PhaseName(Phase phase) {
  static constexpr std::string_view kNames[kNumPhases] = {
      "router_queue", "reserve_wait",      "prefill_queue", "prefill_compute", "exposed_transfer",
      "adopt",        "first_decode_step", "decode",        "detokenize",      "messaging"};
  return kNames[static_cast<int>(phase)];
}

void Timeline::Advance(Stage stage, absl::Time now) {
  if (stage <= stage_) return;
  now = std::max(now, boundaries_[stage_]);
  for (int s = stage_ + 1; s <= stage; ++s) boundaries_[s] = now;
  stage_ = stage;
}

void Timeline::Report(const session::PhaseTimes& times) {
  MergeOne(times.prefill_queue, times_.prefill_queue);
  MergeOne(times.prefill_compute, times_.prefill_compute);
  MergeOne(times.exposed_transfer, times_.exposed_transfer);
  MergeOne(times.adopt, times_.adopt);
  MergeOne(times.first_decode_step, times_.first_decode_step);
  MergeOne(times.transfer_total, times_.transfer_total);
  if (times.transfer_bytes != 0) times_.transfer_bytes = times.transfer_bytes;
  if (!times.layers.empty()) times_.layers = times.layers;
}

std::array<absl::Duration, kNumPhases> Timeline::Phases() const {
  BATON_CHECK(has_ended(), "phases are asked of a sequence that is still running");
  std::array<absl::Duration, kNumPhases> phases{};
  const auto add = [&](Phase phase, absl::Duration amount) {
    phases[static_cast<int>(phase)] += amount;
  };
  for (int s = kQueue; s < kOver; ++s) {
    absl::Duration rest = boundaries_[s + 1] - boundaries_[s];
    add(Phase::kDetokenize, Take(detokenize_[s], rest));
    switch (static_cast<Stage>(s)) {
      case kQueue:
        add(Phase::kRouterQueue, rest);
        break;
      case kReserve:
        if (!local_prefill_) {
          add(Phase::kReserveWait, rest);
          break;
        }
        [[fallthrough]];  // the decode worker's answer is the first token
      case kPrefill:
        add(Phase::kPrefillQueue, Take(times_.prefill_queue, rest));
        add(Phase::kPrefillCompute, Take(times_.prefill_compute, rest));
        add(Phase::kMessaging, rest);
        break;
      case kHandoff:
        if (local_prefill_) {
          add(Phase::kFirstDecodeStep, rest);
          break;
        }
        add(Phase::kExposedTransfer, Take(times_.exposed_transfer, rest));
        add(Phase::kAdopt, Take(times_.adopt, rest));
        add(Phase::kFirstDecodeStep, Take(times_.first_decode_step, rest));
        add(Phase::kMessaging, rest);
        break;
      case kDecoding:
        add(Phase::kDecode, rest);
        break;
      case kTail:
      case kOver:
        add(Phase::kDetokenize, rest);
        break;
    }
  }
  return phases;
}

}  // namespace baton::router
