#include "router/core/timeline.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/router/core/dispatcher_fakes.h"

namespace baton::router {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);
absl::Time At(int ms) { return kStart + absl::Milliseconds(ms); }
absl::Duration Of(const Timeline& timeline, Phase phase) {
  return timeline.Phases()[static_cast<int>(phase)];
}

TEST(TimelineTest, SplitsAHandoffByWhatTheWorkersReport) {
  Timeline timeline(At(0));
  timeline.Submitted(At(2));
  timeline.TicketGranted(At(5));
  session::PhaseTimes prefill;
  prefill.prefill_queue = absl::Milliseconds(10);
  prefill.prefill_compute = absl::Milliseconds(30);
  timeline.Report(prefill);
  timeline.FirstToken(At(50));
  timeline.AddDetokenize(absl::Milliseconds(1));
  session::PhaseTimes decode;
  decode.exposed_transfer = absl::Milliseconds(3);
  decode.adopt = absl::Milliseconds(2);
  decode.first_decode_step = absl::Milliseconds(8);
  timeline.Report(decode);
  timeline.FirstDecodeOutput(At(70));
  timeline.LastToken(At(170));
  timeline.Ended(At(171));

  EXPECT_EQ(Of(timeline, Phase::kRouterQueue), absl::Milliseconds(2));
  EXPECT_EQ(Of(timeline, Phase::kReserveWait), absl::Milliseconds(3));
  EXPECT_EQ(Of(timeline, Phase::kPrefillQueue), absl::Milliseconds(10));
  EXPECT_EQ(Of(timeline, Phase::kPrefillCompute), absl::Milliseconds(30));
  EXPECT_EQ(Of(timeline, Phase::kExposedTransfer), absl::Milliseconds(3));
  EXPECT_EQ(Of(timeline, Phase::kAdopt), absl::Milliseconds(2));
  EXPECT_EQ(Of(timeline, Phase::kFirstDecodeStep), absl::Milliseconds(8));
  EXPECT_EQ(Of(timeline, Phase::kDecode), absl::Milliseconds(100));
  EXPECT_EQ(Of(timeline, Phase::kDetokenize), absl::Milliseconds(2));
  EXPECT_EQ(Of(timeline, Phase::kMessaging), absl::Milliseconds(5 + 6));
  EXPECT_EQ(SumOfPhases(timeline), absl::Milliseconds(171));
}

TEST(TimelineTest, ALocalPrefillHasNoHandoff) {
  Timeline timeline(At(0));
  timeline.Submitted(At(1));
  timeline.SetLocalPrefill();
  session::PhaseTimes times;
  times.prefill_queue = absl::Milliseconds(4);
  times.prefill_compute = absl::Milliseconds(20);
  timeline.Report(times);
  timeline.FirstToken(At(26));
  timeline.FirstDecodeOutput(At(36));
  timeline.LastToken(At(46));
  timeline.Ended(At(46));

  EXPECT_EQ(Of(timeline, Phase::kReserveWait), absl::ZeroDuration());
  EXPECT_EQ(Of(timeline, Phase::kPrefillQueue), absl::Milliseconds(4));
  EXPECT_EQ(Of(timeline, Phase::kPrefillCompute), absl::Milliseconds(20));
  EXPECT_EQ(Of(timeline, Phase::kMessaging), absl::Milliseconds(1));
  EXPECT_EQ(Of(timeline, Phase::kFirstDecodeStep), absl::Milliseconds(10));
  EXPECT_EQ(Of(timeline, Phase::kExposedTransfer), absl::ZeroDuration());
}

// Property: whatever the workers claim, whenever it ends, and even if the clock steps back.
TEST(TimelineTest, PhasesAlwaysAddUpToTheLatency) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto some = [&] { return absl::Microseconds(static_cast<int>(random() % 5000) - 500); };
    absl::Time now = kStart;
    Timeline timeline(now);
    for (int step = random() % 8; step > 0; --step) {
      now += some();
      session::PhaseTimes times;
      times.prefill_queue = some();
      times.prefill_compute = some();
      times.exposed_transfer = some();
      times.adopt = some();
      times.first_decode_step = some();
      if (random() % 2 == 0) timeline.Report(times);
      if (random() % 2 == 0) timeline.AddDetokenize(some());
      if (random() % 4 == 0) timeline.SetLocalPrefill();
      switch (random() % 5) {
        case 0:
          timeline.Submitted(now);
          break;
        case 1:
          timeline.TicketGranted(now);
          break;
        case 2:
          timeline.FirstToken(now);
          break;
        case 3:
          timeline.FirstDecodeOutput(now);
          break;
        default:
          timeline.LastToken(now);
      }
    }
    timeline.Ended(now + some());

    EXPECT_EQ(SumOfPhases(timeline), timeline.ended() - timeline.arrival());
    for (const absl::Duration phase : timeline.Phases()) EXPECT_GE(phase, absl::ZeroDuration());
  }
}

}  // namespace
}  // namespace baton::router
