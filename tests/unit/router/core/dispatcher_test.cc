#include "router/core/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/unit/router/core/dispatcher_fakes.h"

namespace baton::router {
namespace {

using session::WorkerRole;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr SessionId kPrefill = 1;
constexpr SessionId kDecode = 2;

class DispatcherTest : public ::testing::Test {
 protected:
  DispatcherTest() {
    dispatcher_.OnWorkerOpen(kPrefill, MakeHello("p0", WorkerRole::kPrefill));
    dispatcher_.OnWorkerOpen(kDecode, MakeHello("d0", WorkerRole::kDecode));
  }
  static DispatcherOptions Options() {
    DispatcherOptions options;
    options.model_fingerprint = "m";
    options.max_sequences = 4;
    options.max_waiting = 3;
    return options;
  }
  // Submits one sequence and returns the id under which workers know it.
  std::string Submit(RequestKey key) {
    EXPECT_TRUE(dispatcher_.Submit(key, {MakeSequence(sink_, clock_.Now())}).ok());
    const auto sent = outbox_.SentTo<session::Reserve>(kDecode);
    return sent.empty() ? "" : sent.back().spec.request_id;
  }
  void Grant(const std::string& id) {
    session::TicketGranted granted;
    granted.request_id = id;
    granted.ticket.transfer_id = 17;
    granted.ticket.lease = absl::Seconds(5);
    dispatcher_.OnWorkerMessage(kDecode, granted);
  }
  void Output(SessionId session, session::TokenOutput output) {
    dispatcher_.OnWorkerMessage(session, MakeStep(std::move(output)));
  }
  void FailAt(SessionId session, const std::string& id, absl::Status status) {
    dispatcher_.OnWorkerMessage(session, session::RequestFailed{id, std::move(status)});
  }

  FakeClock clock_;
  FakeOutbox outbox_;
  RecordingObserver observer_;
  std::unique_ptr<PlacementPolicy> policy_ = MakeLeastLoadedPolicy({});
  Dispatcher dispatcher_{Options(), clock_, *policy_, outbox_, observer_};
  std::shared_ptr<RecordingSink> sink_ = std::make_shared<RecordingSink>();
};

TEST_F(DispatcherTest, TakesASequenceThroughReservationPrefillAndDecode) {
  const std::string id = Submit(1);
  EXPECT_EQ(outbox_.SentTo<session::Reserve>(kDecode).at(0).spec.prompt.size(), 20u);

  Grant(id);
  const auto prefills = outbox_.SentTo<session::Prefill>(kPrefill);
  ASSERT_EQ(prefills.size(), 1u);
  EXPECT_EQ(prefills[0].ticket.transfer_id, 17u);
  EXPECT_EQ(prefills[0].spec.prompt.size(), 20u);

  Output(kPrefill, MakeOutput(id, 0, {100}));
  EXPECT_THAT(sink_->tokens, ElementsAre(100));
  dispatcher_.OnWorkerMessage(kPrefill, session::TransferReport{id, {}});
  Output(kDecode, MakeOutput(id, 1, {101}));
  Output(kDecode, MakeOutput(id, 2, {102}, FinishReason::kStop));

  EXPECT_THAT(sink_->tokens, ElementsAre(100, 101, 102));
  EXPECT_EQ(sink_->finish, FinishReason::kStop);
  EXPECT_EQ(dispatcher_.num_sequences(), 0);
  ASSERT_EQ(observer_.settled.size(), 1u);
  EXPECT_EQ(observer_.settled[0].outcome, "finished");
  EXPECT_EQ(observer_.settled[0].prefill_worker, "p0");
  EXPECT_EQ(observer_.settled[0].decode_worker, "d0");
  EXPECT_TRUE(outbox_.SentTo<session::Cancel>(kDecode).empty());
  EXPECT_TRUE(outbox_.SentTo<session::Cancel>(kPrefill).empty());
}

TEST_F(DispatcherTest, PutsTheTokensOfBothWorkersInOrderOnce) {
  const std::string id = Submit(1);
  Grant(id);

  Output(kDecode, MakeOutput(id, 1, {101, 102}));
  Output(kDecode, MakeOutput(id, 3, {103}));
  EXPECT_TRUE(sink_->tokens.empty());
  Output(kPrefill, MakeOutput(id, 0, {100}));
  Output(kDecode, MakeOutput(id, 3, {103, 104}, FinishReason::kLength));

  EXPECT_THAT(sink_->tokens, ElementsAre(100, 101, 102, 103, 104));
  EXPECT_FALSE(sink_->called_after_end);
}

TEST_F(DispatcherTest, AFirstTokenThatFinishesFreesTheDecodeWorker) {
  const std::string id = Submit(1);
  Grant(id);

  Output(kPrefill, MakeOutput(id, 0, {100}, FinishReason::kLength));

  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kDecode).size(), 1u);
  EXPECT_EQ(dispatcher_.num_sequences(), 0);
}

TEST_F(DispatcherTest, CancelReachesEveryWorkerInvolvedInEveryPhase) {
  const std::string reserving = Submit(1);
  dispatcher_.Cancel(1);
  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kDecode).back().request_id, reserving);
  EXPECT_TRUE(outbox_.SentTo<session::Cancel>(kPrefill).empty());

  const std::string prefilling = Submit(2);
  Grant(prefilling);
  dispatcher_.Cancel(2);
  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kDecode).back().request_id, prefilling);
  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kPrefill).back().request_id, prefilling);

  const std::string decoding = Submit(3);
  Grant(decoding);
  Output(kPrefill, MakeOutput(decoding, 0, {100}));
  dispatcher_.OnWorkerMessage(kPrefill, session::TransferReport{decoding, {}});
  Output(kDecode, MakeOutput(decoding, 1, {101}));
  dispatcher_.Cancel(3);
  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kDecode).back().request_id, decoding);
  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kPrefill).back().request_id, prefilling);
  EXPECT_FALSE(sink_->ended());
  EXPECT_EQ(observer_.settled.size(), 3u);
}

TEST_F(DispatcherTest, ASinkThatWantsNoMoreFreesTheDecodeWorker) {
  sink_->stop_after = 2;
  const std::string id = Submit(1);
  Grant(id);
  Output(kPrefill, MakeOutput(id, 0, {100}));

  Output(kDecode, MakeOutput(id, 1, {101, 102}));

  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kDecode).size(), 1u);
  EXPECT_EQ(observer_.ended.at(0).outcome, "stopped");
  EXPECT_FALSE(sink_->called_after_end);
}

TEST_F(DispatcherTest, TriesAnotherDecodeWorkerWhenOneRefuses) {
  dispatcher_.OnWorkerOpen(7, MakeHello("d1", WorkerRole::kDecode));
  ASSERT_TRUE(dispatcher_.Submit(1, {MakeSequence(sink_, clock_.Now())}).ok());
  const SessionId first = outbox_.SentTo<session::Reserve>(kDecode).empty() ? 7 : kDecode;
  const SessionId second = first == 7 ? kDecode : 7;
  const std::string id = outbox_.SentTo<session::Reserve>(first).at(0).spec.request_id;

  FailAt(first, id, absl::ResourceExhaustedError("queue full"));
  EXPECT_EQ(outbox_.SentTo<session::Reserve>(second).size(), 1u);
  FailAt(second, id, absl::ResourceExhaustedError("queue full too"));

  EXPECT_EQ(sink_->failure.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(sink_->failure.message(), HasSubstr("queue full too"));
  EXPECT_EQ(observer_.refusals.size(), 2u);
}

TEST_F(DispatcherTest, WhatCanNeverFitIsNotTriedElsewhere) {
  dispatcher_.OnWorkerOpen(7, MakeHello("d1", WorkerRole::kDecode));
  ASSERT_TRUE(dispatcher_.Submit(1, {MakeSequence(sink_, clock_.Now())}).ok());
  const SessionId first = outbox_.SentTo<session::Reserve>(kDecode).empty() ? 7 : kDecode;

  FailAt(first, outbox_.SentTo<session::Reserve>(first).at(0).spec.request_id,
         absl::InvalidArgumentError("needs 900 blocks"));

  EXPECT_EQ(sink_->failure.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DispatcherTest, BoundsWhatIsAdmittedAndWhatWaits) {
  Submit(1);
  Submit(2);
  const absl::Status two =
      dispatcher_.Submit(3, {MakeSequence(sink_, clock_.Now()), MakeSequence(sink_, clock_.Now())});
  EXPECT_EQ(two.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(dispatcher_.num_sequences(), 2);

  const std::string third = Submit(4);
  EXPECT_EQ(dispatcher_.Submit(5, {MakeSequence(sink_, clock_.Now())}).code(),
            absl::StatusCode::kResourceExhausted);
  Grant(third);
  Output(kPrefill, MakeOutput(third, 0, {100}));

  EXPECT_TRUE(dispatcher_.Submit(6, {MakeSequence(sink_, clock_.Now())}).ok());
}

TEST_F(DispatcherTest, ALostDecodeWorkerFailsItsRequestsAndFreesThePrefillWorker) {
  const std::string id = Submit(1);
  Grant(id);

  dispatcher_.OnWorkerClosed(kDecode);

  EXPECT_EQ(sink_->failure.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(sink_->failure.message(), HasSubstr("worker d0 was lost"));
  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kPrefill).size(), 1u);
  EXPECT_EQ(dispatcher_.Submit(2, {MakeSequence(sink_, clock_.Now())}).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(DispatcherTest, APrefillWorkerLostDuringTheHandoffLeavesTheVerdictToTheDecodeWorker) {
  const std::string id = Submit(1);
  Grant(id);
  Output(kPrefill, MakeOutput(id, 0, {100}));
  dispatcher_.OnWorkerClosed(kPrefill);
  EXPECT_FALSE(sink_->ended());

  Output(kDecode, MakeOutput(id, 1, {101}));
  clock_.Advance(absl::Seconds(2));
  dispatcher_.OnWorkerMessage(kDecode, session::Heartbeat{});
  clock_.Advance(absl::Seconds(2));
  dispatcher_.OnWorkerMessage(kDecode, session::Heartbeat{});
  dispatcher_.Tick();

  EXPECT_FALSE(sink_->ended());
}

TEST_F(DispatcherTest, AHandoffWhosePrefillWorkerIsLostEndsWithItsLease) {
  const std::string id = Submit(1);
  Grant(id);
  Output(kPrefill, MakeOutput(id, 0, {100}));
  dispatcher_.OnWorkerClosed(kPrefill);

  for (int second = 0; second < 7; ++second) {
    clock_.Advance(absl::Seconds(1));
    dispatcher_.OnWorkerMessage(kDecode, session::Heartbeat{});
    dispatcher_.Tick();
  }

  EXPECT_THAT(sink_->failure.message(), HasSubstr("worker p0 was lost during the handoff"));
  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kDecode).size(), 1u);
}

TEST_F(DispatcherTest, SilentWorkersAreLostAndTheirSessionsClosed) {
  Submit(1);
  clock_.Advance(absl::Seconds(2));
  dispatcher_.OnWorkerMessage(kPrefill, session::Heartbeat{});
  clock_.Advance(absl::Seconds(2));

  dispatcher_.Tick();

  EXPECT_THAT(outbox_.closed, ElementsAre(kDecode));
  EXPECT_EQ(sink_->failure.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(dispatcher_.registry().Count().num_prefill, 1);
}

TEST_F(DispatcherTest, ARequestEndsAtItsDeadlineAndSaysWhereItWas) {
  Submit(1);
  for (int second = 0; second < 60; ++second) {
    clock_.Advance(absl::Seconds(1));
    dispatcher_.OnWorkerMessage(kDecode, session::Heartbeat{});
    dispatcher_.OnWorkerMessage(kPrefill, session::Heartbeat{});
    dispatcher_.Tick();
  }

  EXPECT_EQ(sink_->failure.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(sink_->failure.message(), HasSubstr("waiting for a decode worker"));
  EXPECT_EQ(outbox_.SentTo<session::Cancel>(kDecode).size(), 1u);
}

TEST_F(DispatcherTest, RefusesAWorkerOfAnotherModel) {
  session::Hello hello = MakeHello("x", WorkerRole::kDecode);
  hello.fingerprint.model = "other";

  dispatcher_.OnWorkerOpen(9, hello);

  EXPECT_EQ(outbox_.SentTo<session::Welcome>(9).at(0).refusal.code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(dispatcher_.registry().Find(9), nullptr);
}

TEST_F(DispatcherTest, ARestartedWorkerTakesThePlaceOfItsFormerSelf) {
  const std::string id = Submit(1);
  Grant(id);
  session::Hello hello = MakeHello("d0", WorkerRole::kDecode);
  hello.incarnation = 2;

  dispatcher_.OnWorkerOpen(8, hello);

  EXPECT_THAT(outbox_.closed, ElementsAre(kDecode));
  EXPECT_EQ(sink_->failure.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(dispatcher_.registry().Count().num_decode, 1);
}

TEST_F(DispatcherTest, ALateTransferReportCompletesTheTimeline) {
  const std::string id = Submit(1);
  Grant(id);
  Output(kPrefill, MakeOutput(id, 0, {100}));
  clock_.Advance(absl::Milliseconds(9));
  Output(kDecode, MakeOutput(id, 1, {101}, FinishReason::kLength));
  EXPECT_EQ(observer_.ended.size(), 1u);
  EXPECT_TRUE(observer_.settled.empty());

  session::TransferReport report{id, {}};
  report.times.exposed_transfer = absl::Milliseconds(4);
  dispatcher_.OnWorkerMessage(kPrefill, report);

  ASSERT_EQ(observer_.settled.size(), 1u);
  const Timeline& timeline = observer_.settled[0].timeline;
  EXPECT_EQ(timeline.Phases()[static_cast<int>(Phase::kExposedTransfer)], absl::Milliseconds(4));
  EXPECT_EQ(SumOfPhases(timeline), absl::Milliseconds(9));
}

TEST_F(DispatcherTest, DrainingAdmitsNothingNewAndFinishesTheRest) {
  const std::string id = Submit(1);
  dispatcher_.StartDraining();
  EXPECT_EQ(dispatcher_.Submit(2, {MakeSequence(sink_, clock_.Now())}).code(),
            absl::StatusCode::kUnavailable);

  Grant(id);
  Output(kPrefill, MakeOutput(id, 0, {100}, FinishReason::kStop));

  EXPECT_EQ(sink_->finish, FinishReason::kStop);
}

}  // namespace
}  // namespace baton::router
