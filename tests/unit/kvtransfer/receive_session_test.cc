#include "kvtransfer/receive_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <tuple>
#include <utility>

namespace baton::kvtransfer {
namespace {

constexpr LinkId kLink = 1;
constexpr LinkId kOtherLink = 2;
constexpr BeginTransfer kBegin{.num_layers = 2, .num_blocks = 2};
constexpr ReceiveSession::Limits kLimits{.lease = absl::Seconds(10), .max_age = absl::Minutes(1)};
constexpr KvCut kCut{.block_size = 4};
using State = ReceiveSession::State;

// Two layers; blocks of 4 tokens have 64 bytes.
std::shared_ptr<const TransferPlan> Plan(std::vector<std::int32_t> windows = {},
                                         const KvCut& source = kCut) {
  const ModelFingerprint model{.model = "m",
                               .compute = "f32",
                               .kv_dtype = "f16",
                               .num_layers = 2,
                               .num_kv_heads = 1,
                               .head_dim = 4,
                               .windows = std::move(windows)};
  return std::make_shared<const TransferPlan>(model, source, kCut);
}

class ReceiveSessionTest : public testing::Test {
 protected:
  ReceiveSessionTest() { session_.emplace(std::vector<std::int32_t>{7, 3}, 8, kLimits, now_); }

  void Begin() { ASSERT_TRUE(session_->OnBegin(kLink, kBegin, Plan(), "grpc", now_).ok()); }
  absl::Status Start(int layer, int block, LinkId link = kLink) {
    copies_.clear();
    return session_->StartCopy(link, {.rank = 0, .layer = layer, .block = block}, now_, &copies_);
  }
  void Finish(int layer, int block, const absl::Status& status = absl::OkStatus()) {
    session_->FinishCopy({.rank = 0, .layer = layer, .block = block}, status);
  }
  void Land(int layer, int block) {
    ASSERT_TRUE(Start(layer, block).ok());
    Finish(layer, block);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::optional<ReceiveSession> session_;
  std::vector<BlockCopy> copies_;  // of the last Start
};

TEST_F(ReceiveSessionTest, CompletesWhenEveryBlockLandedInAnyOrder) {
  Begin();
  Land(1, 1);
  Land(0, 0);
  Land(1, 0);
  Land(0, 1);

  EXPECT_TRUE(session_->OnFinish(kLink, {.num_blocks = 4, .record = {}}, now_).ok());

  EXPECT_EQ(session_->state(), State::kCompleted);
  EXPECT_TRUE(session_->settled());
  EXPECT_EQ(session_->report().bytes, 4 * 64);
}

TEST_F(ReceiveSessionTest, FailsWhenFinishedWithABlockMissing) {
  Begin();
  Land(0, 0);
  Land(0, 1);
  Land(1, 0);

  const absl::Status status = session_->OnFinish(kLink, {.num_blocks = 4, .record = {}}, now_);

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      std::string(status.message().data(), status.message().size()),
      testing::HasSubstr("3 of 4 landed, 4 announced, first missing: rank 0, layer 1, block 1"));
  EXPECT_EQ(session_->state(), State::kFailed);
}

TEST_F(ReceiveSessionTest, GivesTheDestinationOfEachBlockOnce) {
  Begin();
  ASSERT_TRUE(Start(0, 0).ok());
  EXPECT_EQ(copies_, (std::vector<BlockCopy>{{.destination_block = 7, .bytes = 64}}));
  ASSERT_TRUE(Start(0, 1).ok());
  EXPECT_EQ(copies_, (std::vector<BlockCopy>{{.destination_block = 3, .bytes = 64}}));
  EXPECT_EQ(Start(0, 1).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Start(2, 0).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Start(0, 2).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(copies_.empty());
}

TEST_F(ReceiveSessionTest, ExpectsOnlyTheBlocksThatAreSeenAndRefusesTheOthers) {
  // The row at position 12 sees from 9 on in the first layer and from 5 on in the second.
  session_.emplace(std::vector<std::int32_t>{-1, 3, 5}, 12, kLimits, now_);
  ASSERT_TRUE(
      session_->OnBegin(kLink, {.num_layers = 2, .num_blocks = 3}, Plan({4, 8}), "grpc", now_)
          .ok());

  for (const auto& [layer, block] : {std::pair(0, 0), {0, 1}, {1, 0}}) {
    EXPECT_EQ(Start(layer, block).code(), absl::StatusCode::kOutOfRange) << layer << " " << block;
  }
  for (const auto& [layer, block, to] : {std::tuple(0, 2, 5), {1, 1, 3}, {1, 2, 5}}) {
    Land(layer, block);
    EXPECT_EQ(copies_, (std::vector<BlockCopy>{{.destination_block = to, .bytes = 64}}));
  }

  EXPECT_TRUE(session_->OnFinish(kLink, {.num_blocks = 3, .record = {}}, now_).ok());
  EXPECT_EQ(session_->report().bytes, 3 * 64);
}

TEST_F(ReceiveSessionTest, ASenderThatSkipsMoreThanAgreedIsRefused) {
  ASSERT_TRUE(session_->OnBegin(kLink, kBegin, Plan({0, 4}), "grpc", now_).ok());
  Land(0, 1);
  Land(1, 1);

  const absl::Status status = session_->OnFinish(kLink, {.num_blocks = 2, .record = {}}, now_);

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      std::string(status.message().data(), status.message().size()),
      testing::HasSubstr("2 of 3 landed, 2 announced, first missing: rank 0, layer 0, block 0"));
}

TEST_F(ReceiveSessionTest, CountsTheBlocksOfTheSendersCutAndRanks) {
  // The sender has blocks of 2 tokens and replicates its only head: 4 blocks, from rank 0 alone.
  const auto plan = Plan({}, {.block_size = 2, .tensor_parallel_size = 2});
  ASSERT_TRUE(
      session_->OnBegin(kLink, {.num_layers = 2, .num_blocks = 4}, plan, "grpc", now_).ok());
  std::vector<BlockCopy> copies;
  EXPECT_FALSE(session_->StartCopy(kLink, {.rank = 1, .layer = 0, .block = 0}, now_, &copies).ok());
  for (int layer = 0; layer < 2; ++layer) {
    for (int block = 0; block < 4; ++block) Land(layer, block);
  }
  EXPECT_EQ(copies_, (std::vector<BlockCopy>{{0, 0, 3, 16, 16}, {16, 0, 3, 48, 16}}));

  EXPECT_TRUE(session_->OnFinish(kLink, {.num_blocks = 8, .record = {}}, now_).ok());
  EXPECT_EQ(session_->report().bytes, 8 * 32);
}

TEST_F(ReceiveSessionTest, TakesNothingBeforeBeginOrFromAnotherLink) {
  EXPECT_FALSE(Start(0, 0).ok());
  Begin();
  EXPECT_FALSE(Start(0, 0, kOtherLink).ok());
  EXPECT_FALSE(session_->OnRenew(kOtherLink, now_).ok());
  EXPECT_FALSE(session_->OnFinish(kOtherLink, {}, now_).ok());
  session_->OnAbort(kOtherLink, absl::CancelledError(""));
  session_->OnLinkDown(kOtherLink, absl::UnavailableError(""));
  EXPECT_EQ(session_->state(), State::kReceiving);
}

TEST_F(ReceiveSessionTest, ServesOneBegin) {
  Begin();
  EXPECT_FALSE(session_->OnBegin(kOtherLink, kBegin, Plan(), "grpc", now_).ok());
  EXPECT_EQ(session_->link(), kLink);
}

TEST_F(ReceiveSessionTest, IsNotSettledWhileABlockIsBeingWritten) {
  Begin();
  ASSERT_TRUE(Start(0, 0).ok());
  session_->OnLinkDown(kLink, absl::UnavailableError("gone"));
  EXPECT_EQ(session_->state(), State::kFailed);
  EXPECT_FALSE(session_->settled());

  Finish(0, 0);

  EXPECT_TRUE(session_->settled());
  EXPECT_EQ(session_->failure(), absl::UnavailableError("gone"));
}

TEST_F(ReceiveSessionTest, FailsOnADamagedBlock) {
  Begin();
  ASSERT_TRUE(Start(1, 0).ok());
  Finish(1, 0, absl::DataLossError("damaged"));
  EXPECT_EQ(session_->failure(), absl::DataLossError("rank 0, layer 1, block 0: damaged"));
}

TEST_F(ReceiveSessionTest, WaitsForItsSendersTurnBeyondTheLeaseButNotForEver) {
  session_->OnTick(now_ + absl::Seconds(50));
  EXPECT_EQ(session_->state(), State::kReserved);
  session_->OnTick(session_->deadline());
  EXPECT_EQ(session_->failure().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ReceiveSessionTest, RenewalsAndBlocksExtendTheLeaseUpToTheOldestAge) {
  Begin();
  for (int i = 0; i < 6; ++i) {
    now_ += absl::Seconds(9);
    session_->OnTick(now_);
    ASSERT_EQ(session_->state(), State::kReceiving) << i;
    if (i == 0) {
      Land(0, 0);
    } else {
      ASSERT_TRUE(session_->OnRenew(kLink, now_).ok());
    }
  }
  session_->OnTick(absl::FromUnixSeconds(1060));
  EXPECT_EQ(session_->failure().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ReceiveSessionTest, AnyHolderOfTheTicketMayGiveItUpBeforeBegin) {
  session_->OnAbort(kOtherLink, absl::CancelledError("client gone"));
  EXPECT_EQ(session_->state(), State::kFailed);
  EXPECT_FALSE(session_->OnBegin(kLink, kBegin, Plan(), "grpc", now_).ok());
}

TEST_F(ReceiveSessionTest, RefusesATransferOfAnotherSize) {
  EXPECT_EQ(
      session_->OnBegin(kLink, {.num_layers = 2, .num_blocks = 3}, Plan(), "grpc", now_).code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session_->state(), State::kFailed);
}

}  // namespace
}  // namespace baton::kvtransfer
