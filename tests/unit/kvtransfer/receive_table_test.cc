#include "kvtransfer/receive_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::kvtransfer {
namespace {

constexpr LinkId kLink = 4;
constexpr std::uint64_t kIncarnation = 31;

class ReceiveTableTest : public testing::Test {
 protected:
  ReceiveTableTest() : table_(Options()) {
    table_.OnLinkUp(kLink, SomeHello(), "grpc");
    ticket_ = table_.Reserve({5, 2}, 8, now_);
  }
  static ReceiveTable::Options Options() {
    ReceiveTable::Options options;
    options.worker_id = "d-0";
    options.incarnation = kIncarnation;
    options.fingerprint = {.model = "m",
                           .compute = "f32",
                           .kv_dtype = "f16",
                           .num_layers = 1,
                           .num_kv_heads = 1,
                           .head_dim = 4,
                           .windows = {}};
    options.cut.block_size = 4;
    options.limits = {.lease = absl::Seconds(10), .max_age = absl::Minutes(1)};
    return options;
  }
  static Hello SomeHello() {
    Hello hello;
    hello.worker_id = "p-0";
    hello.expected_worker_id = "d-0";
    hello.expected_incarnation = kIncarnation;
    hello.fingerprint = Options().fingerprint;
    hello.cut = Options().cut;
    return hello;
  }
  Message Make(decltype(Message::body) body) const {
    return {.transfer_id = ticket_.transfer_id,
            .incarnation = ticket_.incarnation,
            .body = std::move(body)};
  }
  void Send(decltype(Message::body) body) { table_.OnMessage(kLink, Make(std::move(body)), now_); }
  DataHeader Data() const {
    return {.transfer_id = ticket_.transfer_id,
            .incarnation = ticket_.incarnation,
            .layer = 0,
            .first_block = 0,
            .num_blocks = 2};
  }
  void Begin() { Send(BeginTransfer{.num_layers = 1, .num_blocks = 2}); }
  void LandAll() {
    for (int index = 0; index < 2; ++index) {
      ASSERT_TRUE(Start(Data(), index).ok());
      table_.FinishCopy(Data(), index, absl::OkStatus());
    }
  }
  absl::Status Start(const DataHeader& header, int index) {
    std::vector<BlockCopy> copies;
    return table_.StartCopy(kLink, header, index, now_, &copies);
  }
  template <class Body>
  int CountReplies() {
    int count = 0;
    for (const auto& reply : table_.TakeReplies()) {
      count += std::holds_alternative<Body>(reply.message.body) ? 1 : 0;
    }
    return count;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  ReceiveTable table_;
  TransferTicket ticket_;
};

TEST_F(ReceiveTableTest, AcknowledgesACompleteTransferAndForgetsIt) {
  Begin();
  LandAll();
  Send(FinishTransfer{.num_blocks = 2, .record = {}});

  const auto done = table_.TakeDone();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_TRUE(done[0].status.ok());
  EXPECT_EQ(done[0].report.transport, "grpc");
  EXPECT_EQ(CountReplies<Acknowledged>(), 1);
  EXPECT_EQ(table_.num_reservations(), 0u);
}

TEST_F(ReceiveTableTest, RefusesFramesOfAFormerIncarnation) {
  Begin();
  DataHeader stale = Data();
  stale.incarnation = kIncarnation - 1;
  Message message = Make(FinishTransfer{.num_blocks = 2, .record = {}});
  message.incarnation = kIncarnation - 1;

  EXPECT_FALSE(Start(stale, 0).ok());
  table_.OnMessage(kLink, message, now_);

  const auto replies = table_.TakeReplies();
  ASSERT_EQ(replies.size(), 1u);
  const auto* refused = std::get_if<Refused>(&replies[0].message.body);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->why.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(replies[0].message.incarnation, kIncarnation - 1);
  EXPECT_EQ(table_.num_refused_blocks(), 1);
  EXPECT_EQ(table_.num_reservations(), 1u);
}

TEST_F(ReceiveTableTest, AReleaseTellsTheSenderAndRefusesWhatComesLate) {
  Begin();
  table_.TakeReplies();

  table_.Release(ticket_.transfer_id);

  EXPECT_EQ(CountReplies<Refused>(), 1);
  EXPECT_EQ(table_.num_reservations(), 0u);
  EXPECT_FALSE(Start(Data(), 0).ok());
  Send(FinishTransfer{.num_blocks = 2, .record = {}});
  EXPECT_EQ(CountReplies<Refused>(), 1);
  EXPECT_TRUE(table_.TakeDone().empty());
}

TEST_F(ReceiveTableTest, AReleaseDuringACopyWaitsForItsEnd) {
  Begin();
  ASSERT_TRUE(Start(Data(), 0).ok());

  table_.Release(ticket_.transfer_id);
  EXPECT_EQ(table_.num_copying(ticket_.transfer_id), 1);
  EXPECT_FALSE(Start(Data(), 1).ok());
  table_.FinishCopy(Data(), 0, absl::OkStatus());

  EXPECT_EQ(table_.num_copying(ticket_.transfer_id), 0);
  EXPECT_EQ(table_.num_reservations(), 0u);
  EXPECT_TRUE(table_.TakeDone().empty());
}

TEST_F(ReceiveTableTest, AReleaseTakesBackAnOutcomeNotYetTold) {
  Begin();
  LandAll();
  Send(FinishTransfer{.num_blocks = 2, .record = {}});

  table_.Release(ticket_.transfer_id);

  EXPECT_TRUE(table_.TakeDone().empty());
}

TEST_F(ReceiveTableTest, ASecondBeginOnTheSameLinkFailsBothSidesAtOnce) {
  Begin();
  Begin();
  EXPECT_EQ(CountReplies<Refused>(), 1);
  const auto done = table_.TakeDone();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReceiveTableTest, ALostLinkFailsOnlyItsTransfers) {
  const TransferTicket other = table_.Reserve({7}, 4, now_);
  Begin();
  table_.OnLinkDown(kLink, absl::UnavailableError("reset"));

  const auto done = table_.TakeDone();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].transfer_id, ticket_.transfer_id);
  EXPECT_THAT(std::string(done[0].status.message().data(), done[0].status.message().size()),
              testing::HasSubstr("link from p-0: reset"));
  EXPECT_EQ(table_.num_reservations(), 1u);
  EXPECT_NE(other.transfer_id, ticket_.transfer_id);
}

TEST_F(ReceiveTableTest, ChecksVersionTicketModelAndCutOfALink) {
  Hello hello = SomeHello();
  EXPECT_TRUE(table_.CheckHello(hello).ok());
  hello.cut = {.block_size = 32, .tensor_parallel_size = 7};
  EXPECT_TRUE(table_.CheckHello(hello).ok());

  Hello wrong_version = hello;
  wrong_version.protocol_version = kProtocolVersion + 1;
  Hello wrong_incarnation = hello;
  wrong_incarnation.expected_incarnation = kIncarnation - 1;
  Hello wrong_model = hello;
  wrong_model.fingerprint.head_dim = 8;
  Hello wrong_cut = hello;
  wrong_cut.cut.block_size = 6;
  Hello no_ranks = hello;
  no_ranks.cut.tensor_parallel_size = 0;
  for (const Hello& wrong : {wrong_version, wrong_incarnation, wrong_model, wrong_cut, no_ranks}) {
    EXPECT_EQ(table_.CheckHello(wrong).code(), absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace baton::kvtransfer
