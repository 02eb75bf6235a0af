// Both facades with the real transports in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "kvtransfer/metrics.h"
#include "kvtransfer/transfer.h"
#include "tests/support/transfer_rig.h"

namespace baton::kvtransfer {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 4;
constexpr int kBlocks = 300;
constexpr std::size_t kBlockBytes = 12288;

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

std::vector<std::int32_t> Iota(int first, int count) {
  std::vector<std::int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

class TransferFacadeTest : public testing::TestWithParam<const char*> {
 protected:
  TransferFacadeTest()
      : source_(TestFingerprint(kLayers), kTestCut, kBlocks),
        destination_(TestFingerprint(kLayers), kTestCut, kBlocks) {
    source_.Fill(1);
  }
  ~TransferFacadeTest() override {
    sender_.reset();
    receiver_.reset();
  }

  TransferSender::Options SenderOptions() {
    TransferSender::Options options;
    options.worker_id = "p-0";
    options.incarnation = 11;
    options.fingerprint = TestFingerprint(kLayers);
    options.memory = source_.memory();
    options.transport = GetParam();
    options.checksum = true;
    return options;
  }
  TransferReceiver::Options ReceiverOptions() {
    TransferReceiver::Options options;
    options.worker_id = "d-0";
    options.incarnation = 22;
    options.fingerprint = TestFingerprint(kLayers);
    options.memory = destination_.memory();
    options.listen_address = "127.0.0.1:0";
    return options;
  }
  void StartSender(TransferSender::Options options) {
    sender_ = TransferSender::Create(std::move(options), clock_);
  }
  void StartReceiver(TransferReceiver::Options options) {
    TransferReceiver::Callbacks callbacks{
        .on_complete =
            [this](std::uint64_t id, const HandoffRecord& record, const ReceiveReport& report) {
              last_record_ = record;
              last_report_ = report;
              received_.Add(id, absl::OkStatus());
            },
        .on_failed = [this](std::uint64_t id,
                            const absl::Status& status) { received_.Add(id, status); }};
    auto receiver = TransferReceiver::Start(std::move(options), std::move(callbacks), clock_);
    ASSERT_TRUE(receiver.ok()) << receiver.status();
    receiver_ = *std::move(receiver);
  }
  void StartBoth() {
    StartReceiver(ReceiverOptions());
    StartSender(SenderOptions());
  }
  std::uint64_t Begin(const TransferTicket& ticket, std::vector<std::int32_t> blocks) {
    return sender_->Begin(
        ticket, std::move(blocks),
        [this](std::uint64_t key, const absl::Status& status, const SendReport& report) {
          last_send_report_ = report;
          sent_.Add(key, status);
        });
  }
  void PutAll(std::uint64_t key, int count) {
    for (int layer = 0; layer < kLayers; ++layer) sender_->PutLayer(key, layer, 0, count);
  }
  // Until that block of the source has arrived in the same place.
  void AwaitBlock(int layer, int block) {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (!source_.SameBlock(layer, block, destination_, block) && absl::Now() < deadline) {
      std::this_thread::yield();
    }
    ASSERT_TRUE(source_.SameBlock(layer, block, destination_, block));
  }
  void ExpectEqualBlocks(const std::vector<std::int32_t>& from,
                         const std::vector<std::int32_t>& to) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (std::size_t i = 0; i < from.size(); ++i) {
        ASSERT_TRUE(source_.SameBlock(layer, from[i], destination_, to[i]))
            << "layer " << layer << ", prompt block " << i;
      }
    }
  }

  RealClock clock_;
  TestPool source_;
  TestPool destination_;
  Outcomes sent_;
  Outcomes received_;
  HandoffRecord last_record_;
  ReceiveReport last_report_;
  SendReport last_send_report_;
  std::unique_ptr<TransferReceiver> receiver_;
  std::unique_ptr<TransferSender> sender_;
};

TEST_P(TransferFacadeTest, DeliversBlocksAndRecord) {
  StartBoth();
  const auto from = Iota(40, 200);
  auto to = Iota(0, 200);
  std::reverse(to.begin(), to.end());
  const TransferTicket ticket = receiver_->Reserve(to, 200 * 16 - 3);
  HandoffRecord record;
  record.first_token = {.token = 77, .logprob = -1.5f, .top = {{77, -1.5f}}};
  record.finish = FinishReason::kLength;

  const std::uint64_t key = Begin(ticket, from);
  PutAll(key, 200);
  sender_->Complete(key, record);

  ASSERT_TRUE(sent_.Wait(key).ok()) << sent_.Wait(key);
  ASSERT_TRUE(received_.Wait(ticket.transfer_id).ok()) << received_.Wait(ticket.transfer_id);
  ExpectEqualBlocks(from, to);
  EXPECT_EQ(last_record_.first_token.token, 77);
  EXPECT_EQ(last_record_.finish, FinishReason::kLength);
  EXPECT_EQ(last_report_.transport, GetParam());
  EXPECT_EQ(last_send_report_.transport, GetParam());
  EXPECT_EQ(last_report_.bytes, static_cast<std::int64_t>(200 * kLayers * kBlockBytes));
  EXPECT_EQ(last_send_report_.bytes, last_report_.bytes);
  ASSERT_EQ(last_send_report_.layers.size(), static_cast<std::size_t>(kLayers));
  for (const LayerMark& mark : last_send_report_.layers) EXPECT_GE(mark.sent, mark.ready);
  EXPECT_LE(last_send_report_.completed, last_send_report_.acknowledged);
}

// 200 blocks of 16 tokens less 3: the next row stands at position 3197. Through a window of 64 it
// sees positions from 3134 on, block 195; through 1, its own, which is not among the prompt's.
TEST_P(TransferFacadeTest, MovesOnlyWhatLaterRowsSeeThroughTheirWindows) {
  metrics::Registry registry;
  TransferMetrics sent_metrics(registry, "send"), received_metrics(registry, "receive");
  TransferReceiver::Options receiver_options = ReceiverOptions();
  receiver_options.fingerprint.windows = {64, 0, 1, 64};
  receiver_options.metrics = &received_metrics;
  TransferSender::Options sender_options = SenderOptions();
  sender_options.fingerprint.windows = {64, 0, 1, 64};
  sender_options.metrics = &sent_metrics;
  StartReceiver(std::move(receiver_options));
  StartSender(std::move(sender_options));
  const TransferTicket ticket = receiver_->Reserve(Iota(0, 200), 200 * 16 - 3);

  const std::uint64_t key = Begin(ticket, Iota(0, 200));
  for (int layer = 0; layer < kLayers; ++layer) {
    sender_->PutLayer(key, layer, 0, 77);
    sender_->PutLayer(key, layer, 77, 200);
  }
  sender_->Complete(key, {});

  ASSERT_TRUE(sent_.Wait(key).ok()) << sent_.Wait(key);
  ASSERT_TRUE(received_.Wait(ticket.transfer_id).ok()) << received_.Wait(ticket.transfer_id);
  const std::vector<int> first_blocks = {195, 0, 199, 195};
  TestPool zeros(TestFingerprint(kLayers), kTestCut, 1);
  std::int64_t num_moved = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int block = 0; block < 200; ++block) {
      const bool moved = block >= first_blocks[layer];
      num_moved += moved ? 1 : 0;
      ASSERT_EQ(source_.SameBlock(layer, block, destination_, block), moved)
          << "layer " << layer << ", block " << block;
      ASSERT_EQ(zeros.SameBlock(layer, 0, destination_, block), !moved)
          << "layer " << layer << ", block " << block;
    }
  }
  const auto bytes = num_moved * static_cast<std::int64_t>(kBlockBytes);
  EXPECT_EQ(num_moved, 5 + 200 + 1 + 5);
  EXPECT_EQ(last_send_report_.bytes, bytes);
  EXPECT_EQ(last_report_.bytes, bytes);
  EXPECT_EQ(sent_metrics.bytes.value(), bytes);
  EXPECT_EQ(received_metrics.bytes.value(), bytes);
  EXPECT_EQ(received_metrics.refused_blocks.value(), 0);
  sender_.reset();  // they count into the metrics
  receiver_.reset();
}

// A layer is on the wire before the next one is put.
TEST_P(TransferFacadeTest, SendsEachLayerBeforeTheNextIsPut) {
  StartBoth();
  const TransferTicket ticket = receiver_->Reserve(Iota(0, 10), 160);
  const std::uint64_t key = Begin(ticket, Iota(0, 10));
  std::vector<absl::Time> put(kLayers);
  for (int layer = 0; layer < kLayers; ++layer) {
    put[layer] = absl::Now();
    sender_->PutLayer(key, layer, 0, 10);
    AwaitBlock(layer, 9);
  }
  sender_->Complete(key, {});

  ASSERT_TRUE(sent_.Wait(key).ok());
  for (int layer = 0; layer + 1 < kLayers; ++layer) {
    EXPECT_LT(last_send_report_.layers[layer].sent, put[layer + 1]) << "layer " << layer;
  }
}

TEST_P(TransferFacadeTest, ManyTransfersShareALink) {
  StartBoth();
  std::vector<std::pair<std::uint64_t, TransferTicket>> begun;
  for (int i = 0; i < 60; ++i) {
    const TransferTicket ticket = receiver_->Reserve(Iota(i * 5, 5), 80);
    begun.emplace_back(Begin(ticket, Iota(i * 5, 5)), ticket);
  }
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const auto& [key, ticket] : begun) {
      sender_->PutLayer(key, layer, 0, 2);
      sender_->PutLayer(key, layer, 2, 5);
    }
  }
  for (const auto& [key, ticket] : begun) sender_->Complete(key, {});

  for (const auto& [key, ticket] : begun) {
    ASSERT_TRUE(sent_.Wait(key).ok()) << sent_.Wait(key);
    ASSERT_TRUE(received_.Wait(ticket.transfer_id).ok());
    EXPECT_EQ(sent_.count(key), 1);
    EXPECT_EQ(received_.count(ticket.transfer_id), 1);
  }
  ExpectEqualBlocks(Iota(0, 300), Iota(0, 300));
}

TEST_P(TransferFacadeTest, AnAbortFailsBothSides) {
  StartBoth();
  const TransferTicket ticket = receiver_->Reserve(Iota(0, 10), 160);
  const std::uint64_t key = Begin(ticket, Iota(0, 10));
  sender_->PutLayer(key, 0, 0, 10);

  sender_->Abort(key, absl::CancelledError("client gone"));

  EXPECT_EQ(sent_.Wait(key).code(), absl::StatusCode::kCancelled);
  const absl::Status status = received_.Wait(ticket.transfer_id);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(MessageOf(status), HasSubstr("client gone"));
}

TEST_P(TransferFacadeTest, AReleaseTellsTheSenderAndMakesNoCallback) {
  StartBoth();
  const TransferTicket ticket = receiver_->Reserve(Iota(0, 10), 160);
  const std::uint64_t key = Begin(ticket, Iota(0, 10));
  sender_->PutLayer(key, 0, 0, 10);
  AwaitBlock(0, 9);

  receiver_->Release(ticket.transfer_id);
  std::memset(destination_.at(1, 0), 0x55, kBlockBytes);
  sender_->PutLayer(key, 1, 0, 10);

  EXPECT_EQ(sent_.Wait(key).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(received_.Has(ticket.transfer_id));
  EXPECT_EQ(*destination_.at(1, 0), std::byte{0x55});
}

TEST_P(TransferFacadeTest, RefusesAnotherModelAndNamesTheField) {
  StartReceiver(ReceiverOptions());
  TransferSender::Options options = SenderOptions();
  options.fingerprint.kv_dtype = "bf16";
  StartSender(options);
  TransferTicket ticket = receiver_->Reserve(Iota(0, 2), 32);

  const std::uint64_t direct = Begin(ticket, Iota(0, 2));
  EXPECT_EQ(sent_.Wait(direct).code(), absl::StatusCode::kFailedPrecondition);

  // A ticket that lies gets as far as the handshake.
  ticket.fingerprint = options.fingerprint;
  const std::uint64_t key = Begin(ticket, Iota(0, 2));
  const absl::Status status = sent_.Wait(key);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), HasSubstr("kv_dtype is bf16 at p-0 and f16 at d-0"));
}

TEST_P(TransferFacadeTest, ARestartedReceiverRefusesOldTicketsAndTakesNewOnes) {
  StartBoth();
  const TransferTicket old_ticket = receiver_->Reserve(Iota(0, 2), 32);
  const std::uint64_t first = Begin(old_ticket, Iota(0, 2));
  sender_->PutLayer(first, 0, 0, 2);
  const std::string address = absl::StrCat("127.0.0.1:", receiver_->port());
  receiver_.reset();
  EXPECT_FALSE(sent_.Wait(first).ok());

  TransferReceiver::Options options = ReceiverOptions();
  options.incarnation = 23;
  options.listen_address = address;
  StartReceiver(options);
  const std::uint64_t stale = Begin(old_ticket, Iota(0, 2));
  const absl::Status status = sent_.Wait(stale);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("incarnation 22"));

  const TransferTicket ticket = receiver_->Reserve(Iota(0, 2), 32);
  const std::uint64_t key = Begin(ticket, Iota(0, 2));
  PutAll(key, 2);
  sender_->Complete(key, {});
  EXPECT_TRUE(sent_.Wait(key).ok()) << sent_.Wait(key);
}

TEST_P(TransferFacadeTest, ARestartedSenderFindsItsReceiverAgain) {
  StartBoth();
  const TransferTicket lost = receiver_->Reserve(Iota(0, 2), 32);
  const std::uint64_t lost_key = Begin(lost, Iota(0, 2));
  sender_->PutLayer(lost_key, 0, 0, 2);
  AwaitBlock(0, 1);

  sender_.reset();
  EXPECT_EQ(sent_.count(lost_key), 1);
  EXPECT_FALSE(received_.Wait(lost.transfer_id).ok());
  StartSender(SenderOptions());

  const TransferTicket ticket = receiver_->Reserve(Iota(2, 2), 32);
  const std::uint64_t key = Begin(ticket, Iota(2, 2));
  PutAll(key, 2);
  sender_->Complete(key, {});
  EXPECT_TRUE(received_.Wait(ticket.transfer_id).ok());
}

TEST_P(TransferFacadeTest, FailsAtOnceWhenNobodyListens) {
  StartBoth();
  TransferTicket ticket = receiver_->Reserve(Iota(0, 2), 32);
  receiver_.reset();

  const std::uint64_t key = Begin(ticket, Iota(0, 2));

  EXPECT_EQ(sent_.Wait(key).code(), absl::StatusCode::kUnavailable);
}

TEST_P(TransferFacadeTest, AReservationThatNobodyBeginsExpires) {
  TransferReceiver::Options options = ReceiverOptions();
  options.max_age = absl::Milliseconds(100);
  StartReceiver(options);

  const TransferTicket ticket = receiver_->Reserve(Iota(0, 2), 32);

  EXPECT_EQ(received_.Wait(ticket.transfer_id).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(TransferFacadeTest, TheSenderRenewsTheLeaseWhileThePromptQueues) {
  TransferReceiver::Options options = ReceiverOptions();
  options.lease = absl::Seconds(1);
  StartReceiver(options);
  StartSender(SenderOptions());
  const TransferTicket ticket = receiver_->Reserve(Iota(0, 2), 32);
  const std::uint64_t key = Begin(ticket, Iota(0, 2));

  // Nothing may happen for more than two leases.
  EXPECT_EQ(received_.Wait(ticket.transfer_id, absl::Milliseconds(2500)).code(),
            absl::StatusCode::kUnknown);
  PutAll(key, 2);
  sender_->Complete(key, {});

  EXPECT_TRUE(received_.Wait(ticket.transfer_id).ok());
}

TEST_P(TransferFacadeTest, CountsWhatItDoes) {
  metrics::Registry registry;
  TransferMetrics send(registry, "send");
  TransferMetrics receive(registry, "receive");
  TransferReceiver::Options receiver_options = ReceiverOptions();
  receiver_options.metrics = &receive;
  StartReceiver(receiver_options);
  TransferSender::Options sender_options = SenderOptions();
  sender_options.metrics = &send;
  StartSender(sender_options);

  const TransferTicket ticket = receiver_->Reserve(Iota(0, 2), 32);
  const std::uint64_t key = Begin(ticket, Iota(0, 2));
  PutAll(key, 2);
  sender_->Complete(key, {});
  ASSERT_TRUE(sent_.Wait(key).ok());
  ASSERT_TRUE(received_.Wait(ticket.transfer_id).ok());

  for (const TransferMetrics* side : {&send, &receive}) {
    EXPECT_EQ(side->bytes.value(), 2.0 * kLayers * kBlockBytes);
    EXPECT_EQ(side->completed.value(), 1);
    EXPECT_EQ(side->failed.value(), 0);
    EXPECT_EQ(side->links_open.value(), 1);
  }
  sender_.reset();
  EXPECT_EQ(send.links_open.value(), 0);
  receiver_.reset();
  EXPECT_EQ(receive.links_open.value(), 0);
}

// Transfers are cancelled from both ends at random moments; every outcome comes once, and blocks
// given back are not written any more.
TEST_P(TransferFacadeTest, SurvivesRandomCancels) {
  StartBoth();
  constexpr int kSlices = 30;
  for (unsigned seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<std::uint64_t> keys;
    std::vector<TransferTicket> tickets;
    std::vector<bool> released(kSlices, false);
    for (int i = 0; i < kSlices; ++i) {
      tickets.push_back(receiver_->Reserve(Iota(i * 10, 10), 160));
      keys.push_back(Begin(tickets[i], Iota(i * 10, 10)));
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int i = 0; i < kSlices; ++i) {
        sender_->PutLayer(keys[i], layer, 0, 10);
        const int victim = static_cast<int>(random() % kSlices);
        if (random() % 12 == 0) sender_->Abort(keys[victim], absl::CancelledError("by P"));
        if (random() % 12 == 0 && !released[victim] &&
            !received_.Has(tickets[victim].transfer_id)) {
          receiver_->Release(tickets[victim].transfer_id);
          released[victim] = !received_.Has(tickets[victim].transfer_id);
          if (released[victim]) std::memset(destination_.at(0, victim * 10), 0x33, kBlockBytes);
        }
      }
    }
    for (int i = 0; i < kSlices; ++i) sender_->Complete(keys[i], {});
    for (int i = 0; i < kSlices; ++i) {
      const absl::Status status = sent_.Wait(keys[i]);
      EXPECT_NE(status.code(), absl::StatusCode::kUnknown);
      if (released[i]) {
        EXPECT_EQ(received_.count(tickets[i].transfer_id), 0);
        EXPECT_EQ(*destination_.at(0, i * 10), std::byte{0x33});
        continue;
      }
      EXPECT_NE(received_.Wait(tickets[i].transfer_id).code(), absl::StatusCode::kUnknown);
      EXPECT_EQ(received_.count(tickets[i].transfer_id), 1);
      if (status.ok()) ExpectEqualBlocks(Iota(i * 10, 10), Iota(i * 10, 10));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, TransferFacadeTest, testing::Values("grpc", "shm"),
                         [](const auto& test) { return std::string(test.param); });

TEST(TransferReceiverTest, NamesTheAddressThatCannotBeBound) {
  RealClock clock;
  TestPool pool(TestFingerprint(1), kTestCut, 1);
  TransferReceiver::Options options;
  options.fingerprint = TestFingerprint(1);
  options.memory = pool.memory();
  options.listen_address = "127.0.0.1:0";
  auto first = TransferReceiver::Start(options, {}, clock);
  ASSERT_TRUE(first.ok());
  options.listen_address = absl::StrCat("127.0.0.1:", (*first)->port());

  auto second = TransferReceiver::Start(options, {}, clock);

  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(second.status()), HasSubstr(options.listen_address));
}

}  // namespace
}  // namespace baton::kvtransfer
