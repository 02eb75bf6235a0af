#include "decode_worker/decode_scheduler.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/decode_worker/scheduler_fixture.h"

namespace baton::decode_worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(DecodeSchedulerTest, GrantsATicketForThePromptAndHoldsTheFirstOutputBlock) {
  SchedulerFixture world(SchedulerFixture::Limits(/*num_blocks=*/10));
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 8, 5);

  world.Reserve(spec, /*local=*/false);

  const TransferTicket ticket = world.TicketOf("a");
  EXPECT_EQ(ticket.num_tokens, 8);
  EXPECT_EQ(ticket.blocks.size(), 2u);
  const session::BlockBooks books = world.scheduler_.Books();
  EXPECT_EQ(books.reserved, 3);  // 8 tokens fill two blocks; the first output token needs a third
  EXPECT_EQ(books.active, 0);
  EXPECT_EQ(books.free, 7);
}

TEST(DecodeSchedulerTest, GoesOnFromTheSecondTokenAfterAHandoff) {
  SchedulerFixture world(SchedulerFixture::Limits(10));
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 7, 9);
  world.Reserve(spec, false);
  EXPECT_FALSE(world.Step());  // nothing to compute before the prompt has arrived

  world.CompleteTransfer(spec);
  EXPECT_EQ(world.scheduler_.Books().reserved, 0);
  world.StepUntilIdle();

  world.ExpectWholeOutput(spec, /*first=*/1);
  EXPECT_EQ(world.observer_.prefill_rows, 0);
  EXPECT_TRUE(world.scheduler_.idle());
  EXPECT_EQ(world.allocator_.num_used(), 0);
}

// Through windows of 6 the row at position 15 sees from 10 on, which is block 2 of 4 tokens each.
DecodeLimits WindowedLimits(int num_blocks) {
  DecodeLimits limits = SchedulerFixture::Limits(num_blocks);
  limits.window = 6;
  return limits;
}

TEST(DecodeSchedulerTest, ReservesNoBlocksThatEveryWindowHidesFromTheRowsToCome) {
  SchedulerFixture world(WindowedLimits(/*num_blocks=*/10));
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 15, 12);

  world.Reserve(spec, /*local=*/false);

  const TransferTicket ticket = world.TicketOf("a");
  EXPECT_EQ(ticket.num_tokens, 15);
  EXPECT_EQ(ticket.blocks, (std::vector<std::int32_t>{-1, -1, 0, 1}));
  EXPECT_EQ(world.scheduler_.Books().reserved, 2);  // position 15 lies in the last of them
  world.CompleteTransfer(spec);
  world.StepUntilIdle();
  world.ExpectWholeOutput(spec, /*first=*/1);
}

TEST(DecodeSchedulerTest, GivesBlocksBackOnceNoLaterRowSeesThem) {
  SchedulerFixture world(WindowedLimits(/*num_blocks=*/16));
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 30, 30);

  world.Reserve(spec, /*local=*/true);
  EXPECT_EQ(world.scheduler_.Books().active, 8);  // computed here: room for all of it at first
  world.Step();
  world.Step();
  for (int i = 1; i < 30; ++i) {
    // A window of 6 lies in 3 blocks at most.
    ASSERT_LE(world.scheduler_.Books().active, 3) << "token " << i;
    ASSERT_TRUE(world.Step());
  }

  world.ExpectWholeOutput(spec);
  EXPECT_EQ(world.allocator_.num_used(), 0);
}

TEST(DecodeSchedulerTest, ManyLongOutputsShareAPoolThatHoldsTheirWindowsOnly) {
  SchedulerFixture world(WindowedLimits(/*num_blocks=*/16));  // 64 tokens
  std::vector<session::RequestSpec> specs;
  for (const char* id : {"a", "b", "c", "d"}) {
    specs.push_back(SchedulerFixture::Spec(id, 3, 50));  // 53 tokens each
    world.Reserve(specs.back(), /*local=*/true);
  }

  world.StepUntilIdle();

  EXPECT_EQ(world.observer_.preemptions, 0);
  for (const auto& spec : specs) world.ExpectWholeOutput(spec);
}

TEST(DecodeSchedulerTest, SaysNothingWhenTheHandoffBroughtTheEnd) {
  SchedulerFixture world(SchedulerFixture::Limits(10));
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 7, 9);
  world.Reserve(spec, false);
  world.outbox_.Take();
  const std::uint64_t id = world.receiver_.open().begin()->first;
  ASSERT_TRUE(world.receiver_.Close(id));

  world.Handle(worker::ReceiveDone{id, {{}, FinishReason::kStop}, {}});

  EXPECT_TRUE(world.outbox_.sent().empty());
  EXPECT_TRUE(world.scheduler_.idle());
  EXPECT_EQ(world.allocator_.num_used(), 0);
  EXPECT_TRUE(world.observer_.ends["a"].front().ok());
}

TEST(DecodeSchedulerTest, RefusesAFirstTokenOutsideTheVocabulary) {
  SchedulerFixture world(SchedulerFixture::Limits(10));
  world.Reserve(SchedulerFixture::Spec("a", 7, 9), false);
  const std::uint64_t id = world.TicketOf("a").transfer_id;
  world.receiver_.Close(id);
  worker::ReceiveDone done;
  done.transfer_id = id;
  done.record.first_token.token = kTestVocab;

  world.Handle(done);

  const auto failed = world.outbox_.Of<session::RequestFailed>("a");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(world.scheduler_.idle());
}

TEST(DecodeSchedulerTest, PrefillsLocallyInChunksFromPositionZero) {
  SchedulerFixture world(SchedulerFixture::Limits(20), /*takes_transfers=*/false);
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 40, 6);  // 16 rows a step

  world.Reserve(spec, /*local=*/true);
  const int steps = world.StepUntilIdle();

  EXPECT_EQ(steps, 3 + 5);
  EXPECT_EQ(world.observer_.prefill_rows, 40);
  world.ExpectWholeOutput(spec);
}

TEST(DecodeSchedulerTest, ComputesDecodeRowsBeforeChunksInOneStep) {
  SchedulerFixture world(SchedulerFixture::Limits(40));
  const session::RequestSpec running = SchedulerFixture::Spec("a", 3, 20);
  const session::RequestSpec prompt = SchedulerFixture::Spec("b", 60, 4);
  world.Reserve(running, true);
  world.Step();
  world.Reserve(prompt, true);

  for (int i = 1; i <= 3; ++i) {
    world.Step();

    EXPECT_EQ(world.observer_.decode_rows, i);  // the long prompt stalls nobody
    EXPECT_EQ(world.observer_.prefill_rows, 3 + 15 * i);
  }
  world.StepUntilIdle();
  world.ExpectWholeOutput(running);
  world.ExpectWholeOutput(prompt);
}

TEST(DecodeSchedulerTest, SendsOneMessagePerRouterAndStep) {
  SchedulerFixture world(SchedulerFixture::Limits(40));
  const worker::SessionKey other{1, 1};
  world.Reserve(SchedulerFixture::Spec("a", 3, 4), true);
  world.Reserve(SchedulerFixture::Spec("b", 3, 4), true);
  world.Reserve(SchedulerFixture::Spec("a", 4, 4), true, other);  // ids are the session's own

  world.Step();

  ASSERT_EQ(world.outbox_.sent().size(), 2u);
  EXPECT_EQ(world.outbox_.sent()[0].to, kTestRouter);
  EXPECT_EQ(std::get<session::StepOutputs>(world.outbox_.sent()[0].message).outputs.size(), 2u);
  EXPECT_EQ(world.outbox_.sent()[1].to, other);
  EXPECT_EQ(std::get<session::StepOutputs>(world.outbox_.sent()[1].message).outputs.size(), 1u);
}

TEST(DecodeSchedulerTest, ReportsPlacesAndServesByPriorityThenArrival) {
  SchedulerFixture world(SchedulerFixture::Limits(/*num_blocks=*/4));
  const session::RequestSpec first = SchedulerFixture::Spec("a", 11, 3);  // takes 3 of 4
  const session::RequestSpec second = SchedulerFixture::Spec("b", 8, 2);
  session::RequestSpec urgent = SchedulerFixture::Spec("c", 8, 2);
  urgent.priority = -1;

  world.Reserve(first, true);
  world.Reserve(second, true);
  world.Reserve(urgent, true);

  EXPECT_TRUE(world.outbox_.Of<session::ReserveQueued>("a").empty());
  EXPECT_EQ(world.outbox_.Of<session::ReserveQueued>("b").at(0).place, 0);
  EXPECT_EQ(world.outbox_.Of<session::ReserveQueued>("c").at(0).place, 0);  // before b
  EXPECT_EQ(world.scheduler_.Load().waiting, 2);
  world.StepUntilIdle();
  std::vector<std::string> order;
  for (const auto& sent : world.outbox_.sent()) {
    const auto* step = std::get_if<session::StepOutputs>(&sent.message);
    if (step == nullptr) continue;
    for (const auto& output : step->outputs) {
      if (output.finish != FinishReason::kNone) order.push_back(output.request_id);
    }
  }
  EXPECT_THAT(order, ElementsAre("a", "c", "b"));
}

TEST(DecodeSchedulerTest, RefusesBeyondTheQueueBound) {
  DecodeLimits limits = SchedulerFixture::Limits(4);
  limits.max_waiting = 2;
  SchedulerFixture world(limits);
  for (const char* id : {"a", "b", "c", "d"}) {
    world.Reserve(SchedulerFixture::Spec(id, 12, 3), true);
  }

  const auto failed = world.outbox_.Of<session::RequestFailed>("d");

  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(failed[0].status), HasSubstr("2 requests wait for KV blocks, limit 2"));
  EXPECT_EQ(world.observer_.refused[RefusalReason::kQueueFull], 1);
  EXPECT_EQ(world.scheduler_.Load().waiting, 2);
}

TEST(DecodeSchedulerTest, RefusesAtOnceWhatCanNeverFit) {
  SchedulerFixture world(SchedulerFixture::Limits(4));

  world.Reserve(SchedulerFixture::Spec("a", 16, 1), false);

  const auto failed = world.outbox_.Of<session::RequestFailed>("a");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(failed[0].status), HasSubstr("16 tokens need 5 blocks, pool has 4"));
}

TEST(DecodeSchedulerTest, EndsByLengthAtThePoolsOwnContext) {
  SchedulerFixture world(SchedulerFixture::Limits(4));  // 16 tokens in all
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 10, 100);

  world.Reserve(spec, true);
  world.StepUntilIdle();

  EXPECT_EQ(world.Alone(spec).size(), 6u);
  world.ExpectWholeOutput(spec);
  EXPECT_EQ(world.outbox_.OutputsOf("a").back().finish, FinishReason::kLength);
}

TEST(DecodeSchedulerTest, EndsWithoutTokensWhenTheHandoffFilledOurContext) {
  SchedulerFixture world(SchedulerFixture::Limits(2));  // 8 tokens in all
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 7, 100);
  world.Reserve(spec, false);

  world.CompleteTransfer(spec);

  const auto outputs = world.outbox_.OutputsOf("a");
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].first_position, 1);
  EXPECT_TRUE(outputs[0].tokens.empty());
  EXPECT_EQ(outputs[0].finish, FinishReason::kLength);
  EXPECT_TRUE(world.scheduler_.idle());
}

TEST(DecodeSchedulerTest, FailsARequestWhoseTransferFailed) {
  SchedulerFixture world(SchedulerFixture::Limits(10));
  world.Reserve(SchedulerFixture::Spec("a", 7, 9), false);
  const std::uint64_t id = world.TicketOf("a").transfer_id;
  world.receiver_.Close(id);

  world.Handle(worker::ReceiveFailed{id, absl::DeadlineExceededError("lease expired")});

  const auto failed = world.outbox_.Of<session::RequestFailed>("a");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(failed[0].status), HasSubstr("lease expired"));
  EXPECT_EQ(world.allocator_.num_used(), 0);
  EXPECT_TRUE(world.receiver_.released().empty());
}

TEST(DecodeSchedulerTest, SilencesTheTransferOfACancelledRequest) {
  SchedulerFixture world(SchedulerFixture::Limits(10));
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 7, 9);
  world.Reserve(spec, false);
  const std::uint64_t id = world.TicketOf("a").transfer_id;

  world.Cancel("a");
  EXPECT_THAT(world.receiver_.released(), ElementsAre(id));
  world.outbox_.Take();
  world.Handle(worker::ReceiveDone{id, {}, {}});  // was on its way

  EXPECT_TRUE(world.outbox_.sent().empty());
  EXPECT_TRUE(world.scheduler_.idle());
  EXPECT_EQ(world.allocator_.num_used(), 0);
}

TEST(DecodeSchedulerTest, CancelFreesAtOnceInEveryState) {
  DecodeLimits limits = SchedulerFixture::Limits(12);
  limits.max_num_seqs = 1;
  SchedulerFixture world(limits);
  const session::RequestSpec ready = SchedulerFixture::Spec("b", 6, 5);
  world.Reserve(SchedulerFixture::Spec("a", 6, 50), true);  // running
  world.Step();
  world.Reserve(ready, false);
  world.CompleteTransfer(ready);                             // ready: the batch has one place
  world.Reserve(SchedulerFixture::Spec("c", 6, 5), false);   // receiving
  world.Reserve(SchedulerFixture::Spec("d", 40, 5), false);  // waiting
  EXPECT_EQ(world.scheduler_.Load().waiting, 1);

  for (const char* id : {"d", "c", "b", "a"}) world.Cancel(id);

  EXPECT_TRUE(world.scheduler_.idle());
  EXPECT_EQ(world.allocator_.num_used(), 0);
  for (const char* id : {"a", "b", "c", "d"}) {
    ASSERT_EQ(world.observer_.ends[id].size(), 1u) << id;
    EXPECT_EQ(world.observer_.ends[id][0].code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(world.outbox_.Of<session::RequestFailed>(id).empty());
  }
}

TEST(DecodeSchedulerTest, ALostSessionEndsItsRequestsOnly) {
  SchedulerFixture world(SchedulerFixture::Limits(20));
  const worker::SessionKey other{1, 4};
  const session::RequestSpec kept = SchedulerFixture::Spec("b", 5, 6);
  world.Reserve(SchedulerFixture::Spec("a", 5, 6), false);
  world.Reserve(kept, true, other);

  world.Handle(worker::SessionLost{kTestRouter});
  world.StepUntilIdle();

  EXPECT_EQ(world.receiver_.released().size(), 1u);
  EXPECT_TRUE(world.outbox_.OutputsOf("a").empty());
  world.ExpectWholeOutput(kept);
}

TEST(DecodeSchedulerTest, EndsWhatPassesItsDeadline) {
  SchedulerFixture world(SchedulerFixture::Limits(20));
  session::RequestSpec spec = SchedulerFixture::Spec("a", 5, 60);
  spec.time_left = absl::Seconds(3);
  world.Reserve(spec, true);
  world.Step();
  EXPECT_EQ(world.scheduler_.NextDeadline(), world.clock_.Now() + absl::Seconds(3));

  world.clock_.Advance(absl::Seconds(3));
  EXPECT_FALSE(world.Step());

  const auto failed = world.outbox_.Of<session::RequestFailed>("a");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(world.scheduler_.NextDeadline(), absl::InfiniteFuture());
  EXPECT_EQ(world.allocator_.num_used(), 0);
}

TEST(DecodeSchedulerTest, EndsWhatWaitsTooLongForBlocks) {
  DecodeLimits limits = SchedulerFixture::Limits(4);
  limits.max_queue_wait = absl::Seconds(10);
  SchedulerFixture world(limits);
  world.Reserve(SchedulerFixture::Spec("a", 12, 3), false);  // holds the pool, never arrives
  world.Reserve(SchedulerFixture::Spec("b", 12, 3), false);

  world.clock_.Advance(absl::Seconds(10));
  world.Step();

  const auto failed = world.outbox_.Of<session::RequestFailed>("b");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(world.outbox_.Of<session::RequestFailed>("a").empty());  // the lease's business
}

TEST(DecodeSchedulerTest, RefusesNewRequestsWhileDraining) {
  SchedulerFixture world(SchedulerFixture::Limits(20));
  const session::RequestSpec held = SchedulerFixture::Spec("a", 5, 6);
  world.Reserve(held, true);

  world.Handle(worker::DrainStarted{});
  world.Reserve(SchedulerFixture::Spec("b", 5, 6), true);
  world.StepUntilIdle();

  EXPECT_TRUE(world.scheduler_.Load().draining);
  const auto failed = world.outbox_.Of<session::RequestFailed>("b");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kUnavailable);
  world.ExpectWholeOutput(held);
}

TEST(DecodeSchedulerTest, EndsEverythingWhenTheDrainRunsOut) {
  SchedulerFixture world(SchedulerFixture::Limits(20));
  world.Reserve(SchedulerFixture::Spec("a", 5, 60), true);
  world.Reserve(SchedulerFixture::Spec("b", 5, 60), false);
  world.Step();

  world.Handle(worker::EndAll{absl::UnavailableError("drained")});

  EXPECT_TRUE(world.scheduler_.idle());
  EXPECT_EQ(world.outbox_.Of<session::RequestFailed>("a").size(), 1u);
  EXPECT_EQ(world.outbox_.Of<session::RequestFailed>("b").size(), 1u);
  EXPECT_EQ(world.receiver_.released().size(), 1u);
}

TEST(DecodeSchedulerTest, RefusesTransfersWithoutAReceiver) {
  SchedulerFixture world(SchedulerFixture::Limits(20), /*takes_transfers=*/false);

  world.Reserve(SchedulerFixture::Spec("a", 5, 6), false);

  const auto failed = world.outbox_.Of<session::RequestFailed>("a");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST(DecodeSchedulerTest, RefusesAPrefillWorkersMessage) {
  SchedulerFixture world(SchedulerFixture::Limits(20));

  world.Handle(worker::RouterEvent{
      kTestRouter, session::Prefill{SchedulerFixture::Spec("a", 5, 6), {}}, world.clock_.Now()});

  const auto failed = world.outbox_.Of<session::RequestFailed>("a");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST(DecodeSchedulerTest, EndsBothRequestsOfADoubledId) {
  SchedulerFixture world(SchedulerFixture::Limits(20));
  world.Reserve(SchedulerFixture::Spec("a", 5, 6), false);

  world.Reserve(SchedulerFixture::Spec("a", 5, 6), false);

  EXPECT_EQ(world.outbox_.Of<session::RequestFailed>("a").size(), 1u);
  EXPECT_EQ(world.receiver_.released().size(), 1u);
  EXPECT_TRUE(world.scheduler_.idle());
}

TEST(DecodeSchedulerTest, AFailedStepFailsItsRequestsAndNoOthers) {
  SchedulerFixture world(SchedulerFixture::Limits(20));
  const session::RequestSpec later = SchedulerFixture::Spec("b", 5, 6);
  world.Reserve(SchedulerFixture::Spec("a", 5, 6), true);
  world.Reserve(later, false);  // not in the step
  world.model_.FailNextStep(absl::InternalError("boom"));

  world.Step();

  const auto failed = world.outbox_.Of<session::RequestFailed>("a");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(MessageOf(failed[0].status), HasSubstr("boom"));
  world.CompleteTransfer(later);
  world.StepUntilIdle();
  world.ExpectWholeOutput(later, 1);
}

TEST(DecodeSchedulerTest, ScoresThePromptOfALocalPrefillWhateverTheChunks) {
  std::vector<std::vector<SampledToken>> scored;
  for (const int rows : {1, 3, 16, 64}) {
    DecodeLimits limits = SchedulerFixture::Limits(20);
    limits.max_num_batched_tokens = rows;
    SchedulerFixture world(limits);
    session::RequestSpec spec = SchedulerFixture::Spec("a", 23, 3);
    spec.sampling.prompt_logprobs = true;
    spec.sampling.num_prompt_logprobs = 2;

    world.Reserve(spec, true);
    world.StepUntilIdle();

    world.ExpectWholeOutput(spec);
    const auto outputs = world.outbox_.OutputsOf("a");
    scored.push_back(outputs.at(0).prompt_logprobs);
    ASSERT_EQ(scored.back().size(), 22u);
    for (std::size_t i = 0; i < scored.back().size(); ++i) {
      EXPECT_EQ(scored.back()[i].token, spec.prompt[i + 1]);
      EXPECT_EQ(scored.back()[i].top.size(), 2u);
      EXPECT_EQ(scored.back()[i].logprob, scored.front()[i].logprob);
    }
    EXPECT_TRUE(outputs.at(1).prompt_logprobs.empty());
  }
}

TEST(DecodeSchedulerTest, TimesThePhasesOfAHandoff) {
  SchedulerFixture world(SchedulerFixture::Limits(20));
  const session::RequestSpec spec = SchedulerFixture::Spec("a", 7, 4);
  world.Reserve(spec, false);
  world.CompleteTransfer(spec);
  world.clock_.Advance(absl::Milliseconds(7));

  world.scheduler_.Tick();
  const auto plan = world.scheduler_.PlanStep();
  world.clock_.Advance(absl::Milliseconds(20));
  world.scheduler_.FinishStep(world.model_.Step(plan, worker::HooksOf(world.scheduler_)));
  world.Step();

  const auto outputs = world.outbox_.OutputsOf("a");
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].times.adopt, absl::Milliseconds(7));
  EXPECT_EQ(outputs[0].times.first_decode_step, absl::Milliseconds(20));
  EXPECT_EQ(outputs[1].times.first_decode_step, absl::ZeroDuration());
  EXPECT_THAT(world.observer_.phases["a"],
              ElementsAre(Phase::kQueued, Phase::kReceiving, Phase::kReady, Phase::kDecode));
}

TEST(DecodeSchedulerTest, TimesThePhasesOfALocalPrefill) {
  SchedulerFixture world(SchedulerFixture::Limits(20));
  world.Reserve(SchedulerFixture::Spec("a", 7, 4), true);
  world.clock_.Advance(absl::Milliseconds(3));

  world.scheduler_.Tick();
  const auto plan = world.scheduler_.PlanStep();
  world.clock_.Advance(absl::Milliseconds(10));
  world.scheduler_.FinishStep(world.model_.Step(plan, worker::HooksOf(world.scheduler_)));

  const auto outputs = world.outbox_.OutputsOf("a");
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].times.prefill_queue, absl::Milliseconds(3));
  EXPECT_EQ(outputs[0].times.prefill_compute, absl::Milliseconds(10));
  EXPECT_NEAR(world.scheduler_.Load().prefill_tokens_per_second, 700, 1e-6);
}

}  // namespace
}  // namespace baton::decode_worker
