#include "router/core/placement_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/router/core/dispatcher_fakes.h"

namespace baton::router {
namespace {

using session::WorkerRole;

class LeastLoadedPolicyTest : public ::testing::Test {
 protected:
  Worker& Add(SessionId session, WorkerRole role) {
    registry_.Add(session, MakeHello("w" + std::to_string(session), role), absl::UnixEpoch());
    return *registry_.Find(session);
  }
  std::set<SessionId> DecodeChoices(PlacementQuery query = {20, 40}) {
    std::set<SessionId> chosen;
    for (int i = 0; i < 50; ++i) {
      const auto placement = policy_->PlaceDecode(query, registry_);
      if (placement.ok()) chosen.insert(placement->session);
    }
    return chosen;
  }

  WorkerRegistry registry_{absl::Seconds(3)};
  std::unique_ptr<PlacementPolicy> policy_ = MakeLeastLoadedPolicy({});
};

TEST_F(LeastLoadedPolicyTest, SaysWhichKindOfWorkerIsMissing) {
  EXPECT_THAT(policy_->PlaceDecode({20, 40}, registry_).status().message(),
              ::testing::HasSubstr("no decode worker"));

  Add(1, WorkerRole::kDecode);

  const absl::Status status = policy_->PlaceDecode({20, 40}, registry_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("no prefill worker"));
}

TEST_F(LeastLoadedPolicyTest, PrefersFewerSequencesAndBreaksTiesAtRandom) {
  Add(1, WorkerRole::kPrefill);
  Add(2, WorkerRole::kDecode).num_sequences = 3;
  Add(3, WorkerRole::kDecode).num_sequences = 1;
  Add(4, WorkerRole::kDecode).load.running = 1;
  registry_.Find(4)->load.blocks.free = registry_.Find(3)->load.blocks.free;

  EXPECT_EQ(DecodeChoices(), (std::set<SessionId>{3, 4}));
}

TEST_F(LeastLoadedPolicyTest, PrefersAWorkerWithRoomForThePrompt) {
  Add(1, WorkerRole::kPrefill);
  Add(2, WorkerRole::kDecode).load.blocks.free = 1;
  Add(3, WorkerRole::kDecode).num_sequences = 9;

  EXPECT_EQ(DecodeChoices(), std::set<SessionId>{3});
}

TEST_F(LeastLoadedPolicyTest, APromptHandedOverNeedsRoomOnlyForWhatWindowsShow) {
  for (const SessionId session : {1, 2}) {
    Add(session, session == 1 ? WorkerRole::kPrefill : WorkerRole::kDecode);
    registry_.Find(session)->hello.fingerprint.windows = {32, 64};
  }
  // Position 900 sees from 837 on: 5 of the 57 blocks. Busier, so it is chosen only for its room.
  registry_.Find(2)->load.blocks.free = 5;
  registry_.Find(2)->num_sequences = 9;
  Add(3, WorkerRole::kBoth).load.blocks.free = 56;

  EXPECT_EQ(DecodeChoices({900, 910}), std::set<SessionId>{2});
  registry_.Find(2)->load.blocks.free = 4;
  EXPECT_EQ(DecodeChoices({900, 910}), std::set<SessionId>{3});
}

TEST_F(LeastLoadedPolicyTest, LeavesOutDrainingAndExcludedWorkers) {
  Add(1, WorkerRole::kPrefill);
  Add(2, WorkerRole::kDecode).load.draining = true;
  Add(3, WorkerRole::kDecode);
  Add(4, WorkerRole::kDecode);
  const SessionId excluded[] = {3};

  EXPECT_EQ(DecodeChoices({20, 40, excluded}), std::set<SessionId>{4});
}

TEST_F(LeastLoadedPolicyTest, RefusesWhatNoWorkerCanEverHold) {
  Add(1, WorkerRole::kPrefill);
  Add(2, WorkerRole::kDecode);

  const absl::Status status = policy_->PlaceDecode({990, 1001}, registry_).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("1001 tokens"));
  EXPECT_THAT(status.message(), ::testing::HasSubstr("1000"));
}

TEST_F(LeastLoadedPolicyTest, PairsOnlyEqualFingerprints) {
  Add(1, WorkerRole::kPrefill).hello.fingerprint.kv_dtype = "other";
  Worker& decode = Add(2, WorkerRole::kDecode);
  EXPECT_FALSE(policy_->PlaceDecode({20, 40}, registry_).ok());

  Add(3, WorkerRole::kPrefill);

  EXPECT_EQ(policy_->PlacePrefill({20, 40}, decode, registry_).value(), 3u);
}

TEST_F(LeastLoadedPolicyTest, PairsWorkersWhoseCutsOfTheCacheFit) {
  Add(1, WorkerRole::kPrefill).hello.cut = {.block_size = 24};
  Worker& decode = Add(2, WorkerRole::kDecode);
  EXPECT_FALSE(policy_->PlaceDecode({20, 40}, registry_).ok());

  Add(3, WorkerRole::kPrefill).hello.cut = {.block_size = 64, .tensor_parallel_size = 4};

  EXPECT_EQ(policy_->PlacePrefill({20, 40}, decode, registry_).value(), 3u);
}

TEST_F(LeastLoadedPolicyTest, ChoosesThePrefillWorkerWithTheFewestWaitingTokens) {
  Add(1, WorkerRole::kPrefill).load.waiting_tokens = 500;
  Add(2, WorkerRole::kPrefill).num_unanswered_tokens = 100;
  Worker& decode = Add(3, WorkerRole::kDecode);

  EXPECT_EQ(policy_->PlacePrefill({20, 40}, decode, registry_).value(), 2u);
}

TEST_F(LeastLoadedPolicyTest, AWorkerOfBothRolesAlwaysPrefillsItself) {
  Add(1, WorkerRole::kBoth);
  Add(2, WorkerRole::kPrefill);

  EXPECT_TRUE(policy_->PlaceDecode({20, 40}, registry_)->local_prefill);
}

TEST_F(LeastLoadedPolicyTest, ADecodeWorkerPrefillsItselfOnlyWhenConfigured) {
  Add(1, WorkerRole::kDecode);
  EXPECT_FALSE(policy_->PlaceDecode({20, 40}, registry_).ok());

  policy_ = MakeLeastLoadedPolicy({.local_prefill_fallback = true});
  EXPECT_TRUE(policy_->PlaceDecode({20, 40}, registry_)->local_prefill);

  Add(2, WorkerRole::kPrefill);
  EXPECT_FALSE(policy_->PlaceDecode({20, 40}, registry_)->local_prefill);

  policy_ = MakeLeastLoadedPolicy({.local_prefill_threshold = 20});
  EXPECT_TRUE(policy_->PlaceDecode({20, 40}, registry_)->local_prefill);
  EXPECT_FALSE(policy_->PlaceDecode({21, 40}, registry_)->local_prefill);
}

TEST(PlacementPolicyTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const absl::Status status = MakePlacementPolicy("fastest", {}).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("least-loaded"));
}

}  // namespace
}  // namespace baton::router
