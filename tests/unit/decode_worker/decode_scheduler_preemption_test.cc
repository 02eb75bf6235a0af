#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/decode_worker/scheduler_fixture.h"

namespace baton::decode_worker {
namespace {

using ::testing::Contains;
using ::testing::Not;

// Two sequences of 5 prompt tokens in a pool that holds 24 tokens: both run at first, and neither
// can reach its 16 output tokens beside the other.
DecodeLimits TightLimits() { return SchedulerFixture::Limits(/*num_blocks=*/6); }

TEST(DecodeSchedulerPreemptionTest, PreemptsTheNewestAndGivesTheSameOutput) {
  SchedulerFixture world(TightLimits());
  const session::RequestSpec older = SchedulerFixture::Spec("a", 5, 16);
  session::RequestSpec newer = SchedulerFixture::Spec("b", 5, 16);
  newer.sampling.temperature = 1.0f;
  newer.sampling.seed = 99;
  world.Reserve(older, true);
  world.Reserve(newer, true);

  world.StepUntilIdle();

  EXPECT_THAT(world.observer_.phases["b"], Contains(Phase::kPreempted));
  EXPECT_THAT(world.observer_.phases["a"], Not(Contains(Phase::kPreempted)));
  world.ExpectWholeOutput(older);
  world.ExpectWholeOutput(newer);
}

TEST(DecodeSchedulerPreemptionTest, PreemptsTheLowestPriorityBeforeTheNewest) {
  SchedulerFixture world(TightLimits());
  session::RequestSpec older = SchedulerFixture::Spec("a", 5, 16);
  older.priority = 1;
  const session::RequestSpec newer = SchedulerFixture::Spec("b", 5, 16);
  world.Reserve(older, true);
  world.Reserve(newer, true);

  world.StepUntilIdle();

  EXPECT_THAT(world.observer_.phases["a"], Contains(Phase::kPreempted));
  EXPECT_THAT(world.observer_.phases["b"], Not(Contains(Phase::kPreempted)));
  world.ExpectWholeOutput(older);
  world.ExpectWholeOutput(newer);
}

TEST(DecodeSchedulerPreemptionTest, ComputesAHandedOverPromptAgainAfterAPreemption) {
  SchedulerFixture world(TightLimits());
  const session::RequestSpec older = SchedulerFixture::Spec("a", 5, 16);
  const session::RequestSpec newer = SchedulerFixture::Spec("b", 5, 16);
  for (const auto& spec : {older, newer}) {
    world.Reserve(spec, false);
    world.CompleteTransfer(spec);
  }

  world.StepUntilIdle();

  EXPECT_THAT(world.observer_.phases["b"], Contains(Phase::kPreempted));
  EXPECT_GT(world.observer_.prefill_rows, 5);  // prompt and output so far
  world.ExpectWholeOutput(older, 1);
  world.ExpectWholeOutput(newer, 1);
}

// What a window had hidden is computed again too: rows further back see it.
TEST(DecodeSchedulerPreemptionTest, ComputesTheWholeTextAgainAfterItsFrontWasGivenBack) {
  DecodeLimits limits = SchedulerFixture::Limits(/*num_blocks=*/8);
  limits.window = 9;  // up to 3 blocks each
  SchedulerFixture world(limits);
  std::vector<session::RequestSpec> specs;
  for (const char* id : {"a", "b", "c"}) {
    specs.push_back(SchedulerFixture::Spec(id, 7, 20));
    world.Reserve(specs.back(), /*local=*/id[0] == 'b');
    if (id[0] != 'b') world.CompleteTransfer(specs.back());
  }

  world.StepUntilIdle();

  EXPECT_GT(world.observer_.preemptions, 0);
  for (const auto& spec : specs) world.ExpectWholeOutput(spec, spec.request_id == "b" ? 0 : 1);
}

TEST(DecodeSchedulerPreemptionTest, CancelledWhilePreemptedItHoldsNothing) {
  SchedulerFixture world(TightLimits());
  const session::RequestSpec older = SchedulerFixture::Spec("a", 5, 16);
  world.Reserve(older, true);
  world.Reserve(SchedulerFixture::Spec("b", 5, 16), true);
  while (world.observer_.preemptions == 0) ASSERT_TRUE(world.Step());

  world.Cancel("b");
  world.StepUntilIdle();

  EXPECT_TRUE(world.scheduler_.idle());
  EXPECT_EQ(world.allocator_.num_used(), 0);
  world.ExpectWholeOutput(older);
}

// The only running sequence needs a block and a transfer holds the rest: it keeps what it has and
// goes on once the transfer is over, whichever way.
TEST(DecodeSchedulerPreemptionTest, WaitsForATransferThatHoldsTheRestOfThePool) {
  for (const bool fails : {false, true}) {
    SCOPED_TRACE(fails);
    SchedulerFixture world(TightLimits());
    const session::RequestSpec running = SchedulerFixture::Spec("a", 5, 16);
    const session::RequestSpec arriving = SchedulerFixture::Spec("b", 11, 6);  // 3 blocks
    world.Reserve(running, true);
    world.Step();
    world.Reserve(arriving, false);
    ASSERT_EQ(world.scheduler_.Books().reserved, 3);

    world.StepUntilIdle();  // stalls with 3 blocks
    EXPECT_EQ(world.scheduler_.Load().running, 0);
    EXPECT_EQ(world.observer_.preemptions, 0);
    if (fails) {
      const std::uint64_t id = world.TicketOf("b").transfer_id;
      world.receiver_.Close(id);
      world.Handle(worker::ReceiveFailed{id, absl::UnavailableError("gone")});
    } else {
      world.CompleteTransfer(arriving);
    }
    world.StepUntilIdle();

    EXPECT_TRUE(world.scheduler_.idle());
    world.ExpectWholeOutput(running);
    if (!fails) world.ExpectWholeOutput(arriving, 1);
  }
}

// Nobody behind the head of the queue may take the blocks that a stalled sequence waits for.
TEST(DecodeSchedulerPreemptionTest, AStalledSequenceComesBeforeTheQueue) {
  SchedulerFixture world(TightLimits());
  const session::RequestSpec running = SchedulerFixture::Spec("a", 5, 16);
  world.Reserve(running, true);
  world.Step();
  world.Reserve(SchedulerFixture::Spec("b", 11, 6), false);
  world.StepUntilIdle();
  const session::RequestSpec small = SchedulerFixture::Spec("c", 2, 2);
  world.Reserve(small, true);
  EXPECT_EQ(world.outbox_.Of<session::ReserveQueued>("c").size(), 1u);

  world.Cancel("b");
  EXPECT_EQ(world.scheduler_.Load().waiting, 1);
  world.Step();

  EXPECT_EQ(world.scheduler_.Load().running, 1);
  world.StepUntilIdle();
  world.ExpectWholeOutput(running);
  world.ExpectWholeOutput(small);
}

TEST(DecodeSchedulerPreemptionTest, AdmitsOnlyWhatLeavesEveryRunningSequenceABlock) {
  SchedulerFixture world(TightLimits());
  world.Reserve(SchedulerFixture::Spec("a", 5, 16), true);  // 2 of 6 blocks
  world.Step();

  world.Reserve(SchedulerFixture::Spec("b", 14, 2), false);  // the other 4

  EXPECT_EQ(world.outbox_.Of<session::ReserveQueued>("b").size(), 1u);
  EXPECT_EQ(world.scheduler_.Books().free, 4);
}

TEST(DecodeSchedulerPreemptionTest, KeepsPromptScoresAcrossAPreemption) {
  DecodeLimits limits = SchedulerFixture::Limits(8);
  limits.max_num_batched_tokens = 4;
  SchedulerFixture world(limits);
  const session::RequestSpec older = SchedulerFixture::Spec("a", 3, 20);
  session::RequestSpec newer = SchedulerFixture::Spec("b", 23, 4);
  newer.sampling.prompt_logprobs = true;
  world.Reserve(older, true);
  world.Reserve(newer, true);

  world.StepUntilIdle();

  EXPECT_THAT(world.observer_.phases["b"], Contains(Phase::kPreempted));
  world.ExpectWholeOutput(older);
  world.ExpectWholeOutput(newer);
  const auto scores = world.outbox_.OutputsOf("b").at(0).prompt_logprobs;
  ASSERT_EQ(scores.size(), 22u);
  for (std::size_t i = 0; i < scores.size(); ++i) EXPECT_EQ(scores[i].token, newer.prompt[i + 1]);
}

}  // namespace
}  // namespace baton::decode_worker
