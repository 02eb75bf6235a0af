#include "decode_worker/request_check.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::decode_worker {
namespace {

using ::testing::HasSubstr;

DecodeLimits SmallLimits() {
  DecodeLimits limits;
  limits.block_size = 4;
  limits.num_blocks = 5;
  limits.vocab_size = 100;
  limits.max_context = 18;
  return limits;
}

session::RequestSpec SpecOf(int prompt_tokens) {
  session::RequestSpec spec;
  spec.prompt.assign(static_cast<std::size_t>(prompt_tokens), 7);
  return spec;
}

TEST(RequestCheckTest, TakesAPromptThatLeavesRoomForOneToken) {
  EXPECT_TRUE(CheckRequest(SpecOf(17), SmallLimits()).ok());
}

TEST(RequestCheckTest, RefusesAPromptThatFillsTheContextWithBothSizes) {
  const absl::Status status = CheckRequest(SpecOf(18), SmallLimits());

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("18 tokens and 1 of output, context 18"));
}

TEST(RequestCheckTest, RefusesAPromptThatThePoolCanNeverHold) {
  DecodeLimits limits = SmallLimits();
  limits.max_context = 1000;

  EXPECT_TRUE(CheckRequest(SpecOf(19), limits).ok());
  const absl::Status status = CheckRequest(SpecOf(20), limits);

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("20 tokens need 6 blocks, pool has 5"));
}

TEST(RequestCheckTest, RefusesTokensOutsideTheVocabulary) {
  for (const std::int32_t token : {-1, 100}) {
    session::RequestSpec spec = SpecOf(3);
    spec.prompt[2] = token;

    const absl::Status status = CheckRequest(spec, SmallLimits());

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("at position 2, must be 0..99"));
  }
}

TEST(RequestCheckTest, RefusesAnEmptyPromptAndNoOutput) {
  session::RequestSpec no_output = SpecOf(3);
  no_output.sampling.max_tokens = 0;

  EXPECT_EQ(CheckRequest(SpecOf(0), SmallLimits()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckRequest(no_output, SmallLimits()).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::decode_worker
