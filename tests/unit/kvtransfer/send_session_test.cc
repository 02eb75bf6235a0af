#include "kvtransfer/send_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::kvtransfer {
namespace {

constexpr KvCut kCut{.block_size = 4};
constexpr std::size_t kBlockBytes = 64;
constexpr SendSession::Limits kLimits{.ack_timeout = absl::Seconds(10),
                                      .release_grace = absl::Milliseconds(500),
                                      .max_put_bytes = 2 * kBlockBytes + 1};
using State = SendSession::State;

TransferTicket SomeTicket() {
  return {.transfer_id = 9,
          .worker_id = "d-0",
          .incarnation = 3,
          .lease = absl::Seconds(9),
          .address = "host:1",
          .num_tokens = 11,
          .blocks = {4, 5, 6},
          .fingerprint = {.model = "m",
                          .compute = "f32",
                          .kv_dtype = "f16",
                          .num_layers = 2,
                          .num_kv_heads = 1,
                          .head_dim = 4,
                          .windows = {}},
          .cut = kCut};
}

SendSession MakeSession(const TransferTicket& ticket, const KvCut& source = kCut,
                        std::vector<std::int32_t> blocks = {1, 2, 3}) {
  return SendSession(ticket, std::move(blocks),
                     std::make_shared<const TransferPlan>(ticket.fingerprint, source, ticket.cut),
                     kLimits);
}

class SendSessionTest : public testing::Test {
 protected:
  SendSessionTest() : session_(MakeSession(SomeTicket())) {}

  template <class Item>
  std::optional<Item> Next() {
    auto item = session_.Next(now_);
    if (!item.has_value() || !std::holds_alternative<Item>(*item)) return std::nullopt;
    return std::get<Item>(*item);
  }
  void PutAll() {
    for (int layer = 0; layer < 2; ++layer) session_.Put(layer, 0, 3, now_);
  }
  // Hands everything out up to and including Finish.
  int DrainRanges() {
    int ranges = 0;
    while (auto item = session_.Next(now_)) {
      if (!std::holds_alternative<PutRange>(*item)) continue;
      session_.OnAccepted(std::get<PutRange>(*item), now_);
      ++ranges;
    }
    return ranges;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  SendSession session_;
};

TEST_F(SendSessionTest, SendsNothingBeforeTheLinkIsUp) {
  PutAll();
  EXPECT_FALSE(session_.Next(now_).has_value());
}

TEST_F(SendSessionTest, BeginsThenSendsRangesInFramesInTheOrderPut) {
  session_.Put(0, 0, 3, now_);
  session_.OnLinkUp("grpc", now_);

  EXPECT_EQ(Next<BeginTransfer>()->num_blocks, 3);
  const auto first = Next<PutRange>();
  const auto second = Next<PutRange>();

  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->first_block, 0);
  EXPECT_EQ(first->last_block, 2);
  EXPECT_EQ(second->first_block, 2);
  EXPECT_EQ(second->last_block, 3);
  EXPECT_FALSE(session_.Next(now_).has_value());
}

TEST_F(SendSessionTest, EndsWellOnlyAfterTheAcknowledgementAndTheLastRelease) {
  session_.OnLinkUp("shm", now_);
  PutAll();
  session_.Complete({}, now_);
  const int ranges = DrainRanges();
  ASSERT_EQ(session_.state(), State::kFinishing);

  for (int i = 1; i < ranges; ++i) session_.OnReleased(now_);
  session_.OnAcknowledged(now_);
  EXPECT_EQ(session_.state(), State::kClosing);
  session_.OnReleased(now_);

  EXPECT_EQ(session_.state(), State::kClosed);
  EXPECT_TRUE(session_.outcome().ok());
  EXPECT_EQ(session_.report().bytes, 6 * 64);
  EXPECT_EQ(session_.report().transport, "shm");
}

// 11 tokens in blocks of 4: the row at position 11 sees positions 9.. through a window of 3, and
// everything in the other layer.
TransferTicket WindowedTicket() {
  TransferTicket ticket = SomeTicket();
  ticket.fingerprint.windows = {3, 0};
  return ticket;
}

TEST_F(SendSessionTest, DropsBlocksThatNobodySeesThroughTheWindow) {
  SendSession session = MakeSession(WindowedTicket());
  session.OnLinkUp("grpc", now_);
  for (int layer = 0; layer < 2; ++layer) {
    session.Put(layer, 0, 1, now_);
    session.Put(layer, 1, 3, now_);
  }
  session.Complete({}, now_);

  std::vector<std::vector<int>> blocks(2);
  std::int64_t announced = 0;
  while (auto item = session.Next(now_)) {
    if (const auto* finish = std::get_if<FinishTransfer>(&*item)) announced = finish->num_blocks;
    const auto* range = std::get_if<PutRange>(&*item);
    if (range == nullptr) continue;
    session.OnAccepted(*range, now_);
    for (int i = range->first_block; i < range->last_block; ++i) blocks[range->layer].push_back(i);
  }

  EXPECT_EQ(blocks[0], (std::vector<int>{2}));
  EXPECT_EQ(blocks[1], (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(announced, 4);
  EXPECT_EQ(session.report().bytes, 4 * 64);
}

// 2 heads over 3 ranks: the second rank holds what the first one sends. 6 blocks of 2 tokens.
TEST_F(SendSessionTest, SendsTheBlocksOfEachRankThatHoldsAHeadFirst) {
  TransferTicket ticket = SomeTicket();
  ticket.fingerprint.num_kv_heads = 2;
  SendSession session =
      MakeSession(ticket, {.block_size = 2, .tensor_parallel_size = 3}, {9, 8, 7, 6, 5, 4});
  session.OnLinkUp("grpc", now_);
  for (int layer = 0; layer < 2; ++layer) session.Put(layer, 0, 6, now_);
  session.Complete({}, now_);

  std::vector<int> blocks_of_rank(3);
  std::int64_t announced = 0;
  while (auto item = session.Next(now_)) {
    if (const auto* begin = std::get_if<BeginTransfer>(&*item)) {
      EXPECT_EQ(begin->num_blocks, 6);
    }
    if (const auto* finish = std::get_if<FinishTransfer>(&*item)) announced = finish->num_blocks;
    const auto* range = std::get_if<PutRange>(&*item);
    if (range == nullptr) continue;
    session.OnAccepted(*range, now_);
    const auto blocks = session.BlocksOf(*range);
    blocks_of_rank[range->rank] += static_cast<int>(blocks.size());
    EXPECT_LE(blocks.size(), 4u);  // of 32 bytes in a frame
    EXPECT_EQ(blocks[0], 9 - range->first_block);
  }

  EXPECT_EQ(blocks_of_rank, (std::vector<int>{12, 0, 12}));
  EXPECT_EQ(announced, 24);
  EXPECT_EQ(session.report().bytes, 24 * 32);
}

TEST_F(SendSessionTest, StillWantsEveryBlockThatIsSeenAndNoneOutOfRange) {
  SendSession missing = MakeSession(WindowedTicket());
  missing.Put(0, 0, 2, now_);
  missing.Put(1, 0, 3, now_);
  missing.Complete({}, now_);
  SendSession outside = MakeSession(WindowedTicket());
  outside.Put(0, -1, 1, now_);

  EXPECT_EQ(missing.outcome().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(missing.outcome().message().data(), missing.outcome().message().size()),
              testing::HasSubstr("3 of 4 were put, first missing is layer 0, prompt block 2"));
  EXPECT_EQ(outside.outcome().code(), absl::StatusCode::kInternal);
}

TEST_F(SendSessionTest, RefusesToCompleteWithABlockMissing) {
  session_.OnLinkUp("grpc", now_);
  session_.Put(0, 0, 3, now_);
  session_.Put(1, 0, 2, now_);

  session_.Complete({}, now_);

  EXPECT_EQ(session_.state(), State::kClosed);
  EXPECT_EQ(session_.outcome().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(session_.outcome().message().data(), session_.outcome().message().size()),
              testing::HasSubstr("first missing is layer 1, prompt block 2"));
}

TEST_F(SendSessionTest, RefusesABlockPutTwiceOrOutOfRange) {
  SendSession other = MakeSession(SomeTicket());
  session_.Put(0, 0, 2, now_);
  session_.Put(0, 1, 3, now_);
  other.Put(2, 0, 1, now_);

  EXPECT_EQ(session_.outcome().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(other.outcome().code(), absl::StatusCode::kInternal);
}

TEST_F(SendSessionTest, ARangeTakenBackIsNextAgain) {
  session_.OnLinkUp("grpc", now_);
  session_.Put(0, 0, 2, now_);
  session_.Next(now_);
  const auto range = Next<PutRange>();

  session_.TakeBack(*range, now_);

  const auto again = Next<PutRange>();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->first_block, range->first_block);
  EXPECT_EQ(session_.report().bytes, 0);
}

TEST_F(SendSessionTest, AnAbortWaitsForTheTransportToLetGo) {
  session_.OnLinkUp("grpc", now_);
  session_.Put(0, 0, 2, now_);
  session_.Next(now_);
  ASSERT_TRUE(Next<PutRange>().has_value());

  session_.Fail(absl::CancelledError("client gone"), now_);
  EXPECT_EQ(session_.state(), State::kClosing);
  EXPECT_FALSE(session_.must_break_link(now_));
  EXPECT_TRUE(session_.must_break_link(now_ + kLimits.release_grace));
  session_.OnReleased(now_);

  EXPECT_EQ(session_.state(), State::kClosed);
  EXPECT_EQ(session_.outcome(), absl::CancelledError("client gone"));
}

TEST_F(SendSessionTest, TheFirstOutcomeStands) {
  session_.Fail(absl::CancelledError("first"), now_);
  session_.Fail(absl::UnavailableError("second"), now_);
  session_.OnAcknowledged(now_);
  EXPECT_EQ(session_.outcome(), absl::CancelledError("first"));
}

TEST_F(SendSessionTest, RenewsTheLeaseWhileItWaitsForTheEngine) {
  session_.OnLinkUp("grpc", now_);
  session_.Next(now_);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(session_.Next(now_).has_value());
    now_ = session_.NextDeadline();
    session_.OnTick(now_);
    ASSERT_TRUE(Next<RenewLease>().has_value()) << "renewal " << i;
    session_.OnRenewed(now_ + absl::Milliseconds(1));
  }
  EXPECT_EQ(now_, absl::FromUnixSeconds(1000) + 20 * absl::Seconds(3));
  EXPECT_TRUE(session_.open());
}

TEST_F(SendSessionTest, FailsWhenTheReceiverStopsConfirmingTheLease) {
  session_.OnLinkUp("grpc", now_);
  session_.Next(now_);
  now_ += absl::Seconds(3);
  ASSERT_TRUE(Next<RenewLease>().has_value());

  session_.OnTick(now_ + absl::Seconds(5));
  EXPECT_TRUE(session_.open());
  session_.OnTick(now_ + absl::Seconds(6));

  EXPECT_EQ(session_.outcome().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SendSessionTest, FailsWithoutAnAcknowledgementInTime) {
  session_.OnLinkUp("grpc", now_);
  PutAll();
  session_.Complete({}, now_);
  const int ranges = DrainRanges();
  for (int i = 0; i < ranges; ++i) session_.OnReleased(now_);

  session_.OnTick(session_.NextDeadline());

  EXPECT_EQ(session_.state(), State::kClosed);
  EXPECT_EQ(session_.outcome().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(SendSessionTablesTest, ChecksThatTicketAndTablesFit) {
  TransferTicket ticket = SomeTicket();
  EXPECT_TRUE(SendSession::CheckTables(ticket, {1, 2, 3}, kCut, 10).ok());
  EXPECT_FALSE(SendSession::CheckTables(ticket, {1, 2}, kCut, 10).ok());
  EXPECT_FALSE(SendSession::CheckTables(ticket, {1, 2, 10}, kCut, 10).ok());
  EXPECT_FALSE(SendSession::CheckTables(ticket, {1, 2, -1}, kCut, 10).ok());
  ticket.num_tokens = 13;
  EXPECT_FALSE(SendSession::CheckTables(ticket, {1, 2, 3}, kCut, 10).ok());
  ticket.num_tokens = 0;
  ticket.blocks.clear();
  EXPECT_FALSE(SendSession::CheckTables(ticket, {}, kCut, 10).ok());
  // 11 tokens: 3 blocks at the receiver, 6 of 2 tokens here.
  ticket = SomeTicket();
  EXPECT_TRUE(SendSession::CheckTables(ticket, {0, 1, 2, 3, 4, 5}, {.block_size = 2}, 10).ok());
  EXPECT_FALSE(SendSession::CheckTables(ticket, {0, 1, 2}, {.block_size = 2}, 10).ok());
}

}  // namespace
}  // namespace baton::kvtransfer
