#include "prefill_worker/prefill_scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/prefill_worker/prefill_setup.h"

namespace baton::prefill_worker {
namespace {

absl::StatusCode FailureCode(const PrefillSetup& setup, const std::string& id) {
  const auto failures = setup.outbox.Of<session::RequestFailed>(id);
  return failures.size() == 1 ? failures[0].status.code() : absl::StatusCode::kOk;
}

TEST(PrefillSchedulerTest, ComputesHandsOverAndReports) {
  PrefillSetup setup;
  const session::Prefill prefill = setup.MakePrefill("r", 10);
  setup.Submit(prefill);

  EXPECT_TRUE(setup.Step());

  const auto outputs = setup.outbox.OutputsOf("r");
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].first_position, 0);
  EXPECT_EQ(outputs[0].finish, FinishReason::kNone);
  const auto expected =
      FakeStepModel::OutputAlone(prefill.spec.sampling, prefill.spec.prompt, kVocab, 64);
  ASSERT_EQ(outputs[0].tokens.size(), 1u);
  EXPECT_EQ(outputs[0].tokens[0].token, expected[0].token);
  const auto& transfer = setup.sender.open().begin()->second;
  ASSERT_TRUE(transfer.record.has_value());
  EXPECT_EQ(transfer.record->first_token.token, expected[0].token);
  EXPECT_FALSE(setup.scheduler.idle());

  setup.sender.Finish(setup.OnlyTransfer(), absl::OkStatus());
  setup.HandlePosted();

  EXPECT_EQ(setup.outbox.Of<session::TransferReport>("r").size(), 1u);
  EXPECT_TRUE(setup.scheduler.idle());
  EXPECT_EQ(setup.allocator.num_used(), 0);
  EXPECT_TRUE(setup.sender.violations().empty());
}

TEST(PrefillSchedulerTest, PutsABlockWithTheChunkThatFillsIt) {
  PrefillSetup setup({.max_batched_tokens = 6});
  setup.Submit(setup.MakePrefill("r", 11));  // blocks of 4: chunks end at 6, 11
  const auto put = [&] { return setup.sender.open().begin()->second.puts[0]; };

  EXPECT_TRUE(setup.Step());
  EXPECT_EQ(put(), (std::vector<int>{1, 0, 0}));
  EXPECT_TRUE(setup.Step());
  EXPECT_EQ(put(), (std::vector<int>{1, 1, 1}));
  EXPECT_TRUE(setup.outbox.OutputsOf("r").size() == 1);
  EXPECT_TRUE(setup.sender.violations().empty());
}

TEST(PrefillSchedulerTest, HandsOutEachLayerBeforeTheNextIsComputed) {
  PrefillSetup setup;
  setup.Submit(setup.MakePrefill("r", 8));
  setup.scheduler.Tick();
  ASSERT_EQ(setup.scheduler.PlanStep().size(), 1u);

  setup.scheduler.OnLayer(0);

  const auto& puts = setup.sender.open().begin()->second.puts;
  EXPECT_EQ(puts[0], (std::vector<int>{1, 1}));
  EXPECT_EQ(puts[1], (std::vector<int>{0, 0}));
  setup.scheduler.FinishStep(absl::InternalError("the test stops here"));
}

TEST(PrefillSchedulerTest, ComputesSeveralPromptsInOneStep) {
  PrefillSetup setup;
  for (const char* id : {"a", "b", "c"}) setup.Submit(setup.MakePrefill(id, 5));

  EXPECT_TRUE(setup.Step());

  // One message for all three.
  ASSERT_EQ(setup.outbox.sent().size(), 1u);
  EXPECT_EQ(std::get<session::StepOutputs>(setup.outbox.sent()[0].message).outputs.size(), 3u);
}

TEST(PrefillSchedulerTest, TheFirstTokenDoesNotDependOnChunksOrCompany) {
  const auto first_token = [](int max_batched_tokens, int company) {
    PrefillSetup setup({.max_batched_tokens = max_batched_tokens});
    for (int i = 0; i < company; ++i) setup.Submit(setup.MakePrefill(absl::StrCat("c", i), 9));
    setup.Submit(setup.MakePrefill("r", 13));
    setup.RunToEnd();
    return setup.outbox.OutputsOf("r").at(0).tokens.at(0).token;
  };

  const std::int32_t alone = first_token(16, 0);

  EXPECT_EQ(first_token(1, 0), alone);
  EXPECT_EQ(first_token(3, 2), alone);
  EXPECT_EQ(first_token(16, 5), alone);
}

TEST(PrefillSchedulerTest, TurnsGoByPriorityThenArrival) {
  PrefillSetup setup({.max_batched_tokens = 4});
  session::Prefill urgent = setup.MakePrefill("urgent", 4);
  urgent.spec.priority = -1;
  setup.Submit(setup.MakePrefill("first", 4));
  setup.Submit(setup.MakePrefill("second", 4));
  setup.Submit(urgent);

  while (setup.Step()) {
  }

  std::vector<std::string> order;
  for (const auto& sent : setup.outbox.sent()) {
    order.push_back(std::get<session::StepOutputs>(sent.message).outputs.at(0).request_id);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"urgent", "first", "second"}));
}

TEST(PrefillSchedulerTest, WaitsForBlocksAndGoesOnWhenTheyReturn) {
  PrefillSetup setup({.num_blocks = 4});
  setup.Submit(setup.MakePrefill("a", 12));  // 3 of 4 blocks
  setup.Submit(setup.MakePrefill("b", 8));
  EXPECT_TRUE(setup.Step());
  EXPECT_FALSE(setup.Step());  // b does not fit beside a
  EXPECT_EQ(setup.scheduler.Load().waiting, 1);
  EXPECT_EQ(setup.scheduler.Load().waiting_tokens, 8);

  setup.sender.Finish(setup.OnlyTransfer(), absl::OkStatus());
  setup.HandlePosted();

  EXPECT_TRUE(setup.Step());
  EXPECT_EQ(setup.outbox.OutputsOf("b").size(), 1u);
}

TEST(PrefillSchedulerTest, OpensTheTransferBeforeTheRequestsTurnComes) {
  PrefillSetup setup({.max_batched_tokens = 4});
  setup.Submit(setup.MakePrefill("a", 20));
  setup.Submit(setup.MakePrefill("b", 4));

  setup.Step();

  EXPECT_EQ(setup.sender.open().size(), 2u);
  EXPECT_EQ(setup.scheduler.Load().running, 1);
  EXPECT_EQ(setup.scheduler.Load().waiting, 1);
}

TEST(PrefillSchedulerTest, RefusesBeyondMaxWaiting) {
  PrefillSetup setup({.max_waiting = 2});
  for (const char* id : {"a", "b", "c"}) setup.Submit(setup.MakePrefill(id, 5));

  EXPECT_EQ(FailureCode(setup, "c"), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FailureCode(setup, "b"), absl::StatusCode::kOk);
}

TEST(PrefillSchedulerTest, RefusesWhatCanNeverFitAtOnce) {
  PrefillSetup setup({.num_blocks = 3});

  setup.Submit(setup.MakePrefill("big", 20));

  EXPECT_EQ(FailureCode(setup, "big"), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(setup.scheduler.idle());
}

TEST(PrefillSchedulerTest, RefusesReservations) {
  PrefillSetup setup;
  session::Reserve reserve;
  reserve.spec = setup.MakePrefill("r", 5).spec;

  setup.scheduler.Handle(worker::RouterEvent{{0, 1}, reserve, setup.clock.Now()});

  EXPECT_EQ(FailureCode(setup, "r"), absl::StatusCode::kInvalidArgument);
}

TEST(PrefillSchedulerTest, ADrainingWorkerRefusesNewWorkAndFinishesOld) {
  PrefillSetup setup;
  setup.Submit(setup.MakePrefill("old", 5));
  setup.scheduler.Handle(worker::DrainStarted{});
  setup.Submit(setup.MakePrefill("new", 5));

  setup.RunToEnd();

  EXPECT_TRUE(setup.scheduler.Load().draining);
  EXPECT_EQ(FailureCode(setup, "new"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(setup.outbox.Of<session::TransferReport>("old").size(), 1u);
}

TEST(PrefillSchedulerTest, ScoresThePromptWhenAsked) {
  PrefillSetup setup({.max_batched_tokens = 3});
  session::Prefill prefill = setup.MakePrefill("r", 8);
  prefill.spec.sampling.prompt_logprobs = true;
  prefill.spec.sampling.num_prompt_logprobs = 2;
  setup.Submit(prefill);

  setup.RunToEnd();

  const auto outputs = setup.outbox.OutputsOf("r");
  ASSERT_EQ(outputs.size(), 1u);
  const auto& scores = outputs[0].prompt_logprobs;
  ASSERT_EQ(scores.size(), 7u);
  const std::vector<std::int32_t>& prompt = prefill.spec.prompt;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i].token, prompt[i + 1]);
    EXPECT_EQ(scores[i].top.size(), 2u);
    const std::vector<float> logits = FakeStepModel::LogitsAfter(
        std::span(prompt).first(i + 1), static_cast<int>(prompt.size()), kVocab);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(scores[i].logprob, logits[prompt[i + 1]] - std::log(sum), 1e-4) << i;
  }
}

TEST(PrefillSchedulerTest, AFirstTokenThatEndsTheRequestSaysSoToBothSides) {
  PrefillSetup setup;
  session::Prefill prefill = setup.MakePrefill("r", 6);
  prefill.spec.sampling.max_tokens = 1;
  setup.Submit(prefill);

  setup.Step();

  EXPECT_EQ(setup.outbox.OutputsOf("r").at(0).finish, FinishReason::kLength);
  EXPECT_EQ(setup.sender.open().begin()->second.record->finish, FinishReason::kLength);
}

TEST(PrefillSchedulerTest, AFailedTransferFailsTheRequestAndFreesItsBlocks) {
  PrefillSetup setup({.max_batched_tokens = 4});
  setup.Submit(setup.MakePrefill("r", 12));
  setup.Step();

  setup.sender.Finish(setup.OnlyTransfer(), absl::UnavailableError("no route"));
  setup.HandlePosted();

  EXPECT_EQ(FailureCode(setup, "r"), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(setup.scheduler.idle());
  EXPECT_EQ(setup.allocator.num_used(), 0);
}

TEST(PrefillSchedulerTest, AFailedStepFailsItsRequestsOnly) {
  PrefillSetup setup({.max_batched_tokens = 8, .max_sequences = 1});
  setup.Submit(setup.MakePrefill("bad", 8));
  setup.Submit(setup.MakePrefill("good", 8));
  setup.model.FailNextStep(absl::InternalError("broken"));

  setup.RunToEnd();

  EXPECT_EQ(FailureCode(setup, "bad"), absl::StatusCode::kInternal);
  EXPECT_EQ(setup.outbox.Of<session::TransferReport>("good").size(), 1u);
  EXPECT_EQ(setup.allocator.num_used(), 0);
}

TEST(PrefillSchedulerTest, ACancelledRequestKeepsItsBlocksUntilTheTransferLetsGo) {
  PrefillSetup setup({.max_batched_tokens = 4});
  setup.Submit(setup.MakePrefill("r", 12));
  setup.Step();

  setup.Cancel("r");

  EXPECT_EQ(setup.allocator.num_used(), 3);
  EXPECT_FALSE(setup.Step());
  EXPECT_TRUE(setup.sender.open().begin()->second.aborted.has_value());
  setup.sender.Finish(setup.OnlyTransfer(), absl::CancelledError("aborted"));
  setup.HandlePosted();
  EXPECT_EQ(setup.allocator.num_used(), 0);
  EXPECT_TRUE(setup.scheduler.idle());
  EXPECT_TRUE(setup.outbox.sent().empty());
}

TEST(PrefillSchedulerTest, ACancelledIdMayComeAgainAtOnce) {
  PrefillSetup setup({.max_batched_tokens = 4});
  setup.Submit(setup.MakePrefill("r", 12));
  setup.Step();
  setup.Cancel("r");

  setup.Submit(setup.MakePrefill("r", 8));
  setup.RunToEnd();

  EXPECT_EQ(setup.outbox.Of<session::TransferReport>("r").size(), 1u);
  EXPECT_TRUE(setup.sender.violations().empty());
  EXPECT_EQ(setup.allocator.num_used(), 0);
}

TEST(PrefillSchedulerTest, ALostSessionEndsItsRequestsAndNoOthers) {
  PrefillSetup setup;
  setup.Submit(setup.MakePrefill("r", 5), {0, 1});
  setup.Submit(setup.MakePrefill("r", 5), {1, 1});

  setup.scheduler.Handle(worker::SessionLost{{0, 1}});
  setup.RunToEnd();

  EXPECT_TRUE(setup.scheduler.idle());
  for (const auto& sent : setup.outbox.sent()) EXPECT_EQ(sent.to, (worker::SessionKey{1, 1}));
  EXPECT_EQ(setup.outbox.Of<session::TransferReport>("r").size(), 1u);
}

TEST(PrefillSchedulerTest, ADeadlineEndsTheRequestWhereverItIs) {
  PrefillSetup setup({.max_batched_tokens = 4});
  session::Prefill prefill = setup.MakePrefill("r", 12);
  prefill.spec.time_left = absl::Seconds(2);
  setup.Submit(prefill);
  setup.Step();
  EXPECT_EQ(setup.scheduler.NextDeadline(), setup.clock.Now() + absl::Seconds(2));

  setup.clock.Advance(absl::Seconds(2));
  setup.scheduler.Tick();

  EXPECT_EQ(FailureCode(setup, "r"), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(setup.scheduler.NextDeadline(), absl::InfiniteFuture());
  setup.RunToEnd();
  EXPECT_TRUE(setup.scheduler.idle());
}

TEST(PrefillSchedulerTest, EndAllEndsEveryRequestWithItsReason) {
  PrefillSetup setup({.num_blocks = 4, .max_batched_tokens = 4});
  setup.Submit(setup.MakePrefill("a", 12));
  setup.Submit(setup.MakePrefill("b", 12));
  setup.Step();

  setup.scheduler.Handle(worker::EndAll{absl::UnavailableError("stopping")});
  setup.RunToEnd();

  EXPECT_TRUE(setup.scheduler.idle());
  EXPECT_EQ(FailureCode(setup, "a"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(FailureCode(setup, "b"), absl::StatusCode::kUnavailable);
}

TEST(PrefillSchedulerTest, ReportsWhereTheTimeWent) {
  PrefillSetup setup;
  setup.Submit(setup.MakePrefill("r", 8));
  setup.clock.Advance(absl::Milliseconds(3));  // in the queue
  setup.scheduler.Tick();
  setup.scheduler.PlanStep();
  const absl::Time start = setup.clock.Now();
  setup.clock.Advance(absl::Milliseconds(5));  // computing
  for (int layer = 0; layer < kLayers; ++layer) setup.scheduler.OnLayer(layer);
  setup.scheduler.OnToken(0, SampledToken{});
  setup.scheduler.FinishStep(absl::OkStatus());
  const session::PhaseTimes first = setup.outbox.OutputsOf("r").at(0).times;
  kvtransfer::SendReport report;
  report.bytes = 1000;
  report.first_byte = start + absl::Milliseconds(1);
  report.acknowledged = start + absl::Milliseconds(9);
  report.layers = {{0, start + absl::Milliseconds(1), start + absl::Milliseconds(2)}};

  setup.sender.Finish(setup.OnlyTransfer(), absl::OkStatus(), report);
  setup.HandlePosted();

  EXPECT_EQ(first.prefill_queue, absl::Milliseconds(3));
  EXPECT_EQ(first.prefill_compute, absl::Milliseconds(5));
  const session::PhaseTimes times = setup.outbox.Of<session::TransferReport>("r").at(0).times;
  EXPECT_EQ(times.exposed_transfer, absl::Milliseconds(4));
  EXPECT_EQ(times.transfer_bytes, 1000);
  EXPECT_EQ(times.transfer_total, absl::Milliseconds(8));
  ASSERT_EQ(times.layers.size(), 1u);
  EXPECT_EQ(times.layers[0].computed, absl::Milliseconds(1));
  EXPECT_EQ(times.layers[0].sent, absl::Milliseconds(2));
  EXPECT_NEAR(setup.scheduler.Load().prefill_tokens_per_second, 8 / 0.005, 1);
}

TEST(PrefillSchedulerTest, TheTimelineNamesEveryPhase) {
  PrefillSetup setup;
  setup.Submit(setup.MakePrefill("r", 8));

  setup.RunToEnd();

  const auto timeline = setup.timelines.Find("r");
  ASSERT_TRUE(timeline.has_value());
  std::vector<std::string> phases;
  for (const auto& mark : timeline->marks) phases.push_back(mark.phase);
  EXPECT_EQ(phases, (std::vector<std::string>{"queued", "computing", "handoff"}));
  EXPECT_EQ(timeline->outcome, "finished");
}

}  // namespace
}  // namespace baton::prefill_worker
