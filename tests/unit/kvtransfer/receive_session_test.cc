#include "kvtransfer/receive_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::kvtransfer {
namespace {

constexpr LinkId kLink = 1;
constexpr LinkId kOtherLink = 2;
constexpr BeginTransfer kBegin{.num_layers = 2, .num_blocks = 2};
using State = ReceiveSession::State;

class ReceiveSessionTest : public testing::Test {
 protected:
  ReceiveSessionTest()
      : session_({7, 3}, {0, 0}, 64, {.lease = absl::Seconds(10), .max_age = absl::Minutes(1)},
                 now_) {}

  void Begin() { ASSERT_TRUE(session_.OnBegin(kLink, kBegin, "grpc", now_).ok()); }
  void Land(int layer, int block) {
    ASSERT_TRUE(session_.StartCopy(kLink, layer, block, now_).ok());
    session_.FinishCopy(layer, block, true);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  ReceiveSession session_;
};

TEST_F(ReceiveSessionTest, CompletesWhenEveryBlockLandedInAnyOrder) {
  Begin();
  Land(1, 1);
  Land(0, 0);
  Land(1, 0);
  Land(0, 1);

  EXPECT_TRUE(session_.OnFinish(kLink, {.num_blocks = 4, .record = {}}, now_).ok());

  EXPECT_EQ(session_.state(), State::kCompleted);
  EXPECT_TRUE(session_.settled());
  EXPECT_EQ(session_.report().bytes, 4 * 64);
}

TEST_F(ReceiveSessionTest, FailsWhenFinishedWithABlockMissing) {
  Begin();
  Land(0, 0);
  Land(0, 1);
  Land(1, 0);

  const absl::Status status = session_.OnFinish(kLink, {.num_blocks = 4, .record = {}}, now_);

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message().data(), status.message().size()),
              testing::HasSubstr("3 of 4 landed, 4 announced, first missing: layer 1, block 1"));
  EXPECT_EQ(session_.state(), State::kFailed);
}

TEST_F(ReceiveSessionTest, GivesTheDestinationOfEachBlockOnce) {
  Begin();
  EXPECT_EQ(*session_.StartCopy(kLink, 0, 0, now_), 7);
  EXPECT_EQ(*session_.StartCopy(kLink, 0, 1, now_), 3);
  EXPECT_EQ(session_.StartCopy(kLink, 0, 1, now_).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(session_.StartCopy(kLink, 2, 0, now_).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(session_.StartCopy(kLink, 0, 2, now_).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(ReceiveSessionTest, ExpectsOnlyTheBlocksThatAreSeenAndRefusesTheOthers) {
  ReceiveSession session({-1, 3, 5}, {2, 1}, 64,
                         {.lease = absl::Seconds(10), .max_age = absl::Minutes(1)}, now_);
  ASSERT_TRUE(session.OnBegin(kLink, {.num_layers = 2, .num_blocks = 3}, "grpc", now_).ok());
  const auto land = [&](int layer, int block) {
    const auto to = session.StartCopy(kLink, layer, block, now_);
    if (to.ok()) session.FinishCopy(layer, block, true);
    return to;
  };

  for (const auto& [layer, block] : {std::pair(0, 0), {0, 1}, {1, 0}}) {
    EXPECT_EQ(land(layer, block).status().code(), absl::StatusCode::kOutOfRange)
        << layer << " " << block;
  }
  EXPECT_EQ(*land(0, 2), 5);
  EXPECT_EQ(*land(1, 1), 3);
  EXPECT_EQ(*land(1, 2), 5);

  EXPECT_TRUE(session.OnFinish(kLink, {.num_blocks = 3, .record = {}}, now_).ok());
  EXPECT_EQ(session.report().bytes, 3 * 64);
}

TEST_F(ReceiveSessionTest, ASenderThatSkipsMoreThanAgreedIsRefused) {
  ReceiveSession session({4, 3}, {0, 1}, 64,
                         {.lease = absl::Seconds(10), .max_age = absl::Minutes(1)}, now_);
  ASSERT_TRUE(session.OnBegin(kLink, kBegin, "grpc", now_).ok());
  ASSERT_TRUE(session.StartCopy(kLink, 0, 1, now_).ok());
  session.FinishCopy(0, 1, true);
  ASSERT_TRUE(session.StartCopy(kLink, 1, 1, now_).ok());
  session.FinishCopy(1, 1, true);

  const absl::Status status = session.OnFinish(kLink, {.num_blocks = 2, .record = {}}, now_);

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message().data(), status.message().size()),
              testing::HasSubstr("2 of 3 landed, 2 announced, first missing: layer 0, block 0"));
}

TEST_F(ReceiveSessionTest, TakesNothingBeforeBeginOrFromAnotherLink) {
  EXPECT_FALSE(session_.StartCopy(kLink, 0, 0, now_).ok());
  Begin();
  EXPECT_FALSE(session_.StartCopy(kOtherLink, 0, 0, now_).ok());
  EXPECT_FALSE(session_.OnRenew(kOtherLink, now_).ok());
  EXPECT_FALSE(session_.OnFinish(kOtherLink, {}, now_).ok());
  session_.OnAbort(kOtherLink, absl::CancelledError(""));
  session_.OnLinkDown(kOtherLink, absl::UnavailableError(""));
  EXPECT_EQ(session_.state(), State::kReceiving);
}

TEST_F(ReceiveSessionTest, ServesOneBegin) {
  Begin();
  EXPECT_FALSE(session_.OnBegin(kOtherLink, kBegin, "grpc", now_).ok());
  EXPECT_EQ(session_.link(), kLink);
}

TEST_F(ReceiveSessionTest, IsNotSettledWhileABlockIsBeingWritten) {
  Begin();
  ASSERT_TRUE(session_.StartCopy(kLink, 0, 0, now_).ok());
  session_.OnLinkDown(kLink, absl::UnavailableError("gone"));
  EXPECT_EQ(session_.state(), State::kFailed);
  EXPECT_FALSE(session_.settled());

  session_.FinishCopy(0, 0, true);

  EXPECT_TRUE(session_.settled());
  EXPECT_EQ(session_.failure(), absl::UnavailableError("gone"));
}

TEST_F(ReceiveSessionTest, FailsOnADamagedBlock) {
  Begin();
  ASSERT_TRUE(session_.StartCopy(kLink, 1, 0, now_).ok());
  session_.FinishCopy(1, 0, false);
  EXPECT_EQ(session_.failure().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ReceiveSessionTest, WaitsForItsSendersTurnBeyondTheLeaseButNotForEver) {
  session_.OnTick(now_ + absl::Seconds(50));
  EXPECT_EQ(session_.state(), State::kReserved);
  session_.OnTick(session_.deadline());
  EXPECT_EQ(session_.failure().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ReceiveSessionTest, RenewalsAndBlocksExtendTheLeaseUpToTheOldestAge) {
  Begin();
  for (int i = 0; i < 6; ++i) {
    now_ += absl::Seconds(9);
    session_.OnTick(now_);
    ASSERT_EQ(session_.state(), State::kReceiving) << i;
    if (i == 0) {
      Land(0, 0);
    } else {
      ASSERT_TRUE(session_.OnRenew(kLink, now_).ok());
    }
  }
  session_.OnTick(absl::FromUnixSeconds(1060));
  EXPECT_EQ(session_.failure().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ReceiveSessionTest, AnyHolderOfTheTicketMayGiveItUpBeforeBegin) {
  session_.OnAbort(kOtherLink, absl::CancelledError("client gone"));
  EXPECT_EQ(session_.state(), State::kFailed);
  EXPECT_FALSE(session_.OnBegin(kLink, kBegin, "grpc", now_).ok());
}

TEST_F(ReceiveSessionTest, RefusesATransferOfAnotherSize) {
  EXPECT_EQ(session_.OnBegin(kLink, {.num_layers = 2, .num_blocks = 3}, "grpc", now_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session_.state(), State::kFailed);
}

}  // namespace
}  // namespace baton::kvtransfer
