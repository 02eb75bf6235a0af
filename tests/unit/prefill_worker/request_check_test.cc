#include "prefill_worker/request_check.h"

#include <gtest/gtest.h>

#include "tests/unit/prefill_worker/prefill_setup.h"

namespace baton::prefill_worker {
namespace {

bool Mentions(const absl::Status& status, const char* text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST(RequestCheckTest, TakesAPromptThatFits) {
  const PrefillSetup setup;

  EXPECT_TRUE(CheckPrefill(setup.limits, 32, setup.MakePrefill("r", 63)).ok());
}

TEST(RequestCheckTest, RefusesAPromptThatLeavesNoRoomForOutputWithBothLengths) {
  const PrefillSetup setup;

  const absl::Status status = CheckPrefill(setup.limits, 32, setup.MakePrefill("r", 64));

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Mentions(status, "64 tokens")) << status;
  EXPECT_TRUE(Mentions(status, "context of 64")) << status;
}

TEST(RequestCheckTest, RefusesAPromptThatThePoolCanNeverHoldWithBothSizes) {
  const PrefillSetup setup;

  const absl::Status status = CheckPrefill(setup.limits, 3, setup.MakePrefill("r", 20));

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Mentions(status, "need 5 KV blocks")) << status;
  EXPECT_TRUE(Mentions(status, "has 3")) << status;
}

TEST(RequestCheckTest, RefusesATokenOutsideTheVocabulary) {
  const PrefillSetup setup;
  session::Prefill prefill = setup.MakePrefill("r", 5);
  prefill.spec.prompt[2] = kVocab;

  EXPECT_EQ(CheckPrefill(setup.limits, 32, prefill).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestCheckTest, RefusesATicketForAnotherModelNamingBoth) {
  const PrefillSetup setup;
  session::Prefill prefill = setup.MakePrefill("r", 5);
  prefill.ticket.fingerprint.model = "other";

  const absl::Status status = CheckPrefill(setup.limits, 32, prefill);

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Mentions(status, "other/") && Mentions(status, "model/")) << status;
}

TEST(RequestCheckTest, RefusesATicketThatDoesNotFitThePrompt) {
  const PrefillSetup setup;
  session::Prefill prefill = setup.MakePrefill("r", 9);
  prefill.ticket.num_tokens = 8;

  EXPECT_EQ(CheckPrefill(setup.limits, 32, prefill).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::prefill_worker
