// Both facades with the real transports between groups that cut the KV cache differently.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "kvtransfer/metrics.h"
#include "kvtransfer/transfer.h"
#include "tests/support/transfer_rig.h"
#include "tests/support/wait_for.h"

namespace baton::kvtransfer {
namespace {

constexpr int kLayers = 3;
constexpr int kPoolTokens = 2048;

struct Cuts {
  const char* name;
  int num_kv_heads;
  KvCut source;
  KvCut destination;
};

constexpr Cuts kCuts[] = {
    {"tp1_to_2", 4, {16, 1}, {16, 2}},
    {"tp2_to_1", 4, {16, 2}, {16, 1}},
    {"tp2_to_4", 4, {16, 2}, {16, 4}},
    {"tp4_to_2", 4, {16, 4}, {16, 2}},
    {"tp3_to_2_of_3_heads", 3, {16, 3}, {16, 2}},
    {"tp2_to_3_of_3_heads", 3, {16, 2}, {16, 3}},
    {"replicated_source", 2, {16, 4}, {16, 2}},
    {"replicated_destination", 2, {16, 1}, {16, 4}},
    {"replicated_on_both_sides", 3, {16, 4}, {16, 8}},
    {"blocks_of_16_to_32", 3, {16, 1}, {32, 1}},
    {"blocks_of_64_to_16", 3, {64, 1}, {16, 1}},
    {"all_at_once", 3, {64, 2}, {16, 4}},
    {"all_the_other_way", 3, {16, 4}, {64, 2}},
};

class TransferUnequalTest : public ::testing::TestWithParam<std::tuple<const char*, Cuts>> {
 protected:
  TransferUnequalTest()
      : source_(Model(), cuts().source, kPoolTokens / cuts().source.block_size),
        destination_(Model(), cuts().destination, kPoolTokens / cuts().destination.block_size) {
    source_.Fill(1);
  }
  ~TransferUnequalTest() override {
    sender_.reset();
    receiver_.reset();
  }
  static const Cuts& cuts() { return std::get<1>(GetParam()); }
  ModelFingerprint Model() const {
    ModelFingerprint model = TestFingerprint(kLayers);
    model.num_kv_heads = cuts().num_kv_heads;
    model.head_dim = 8;
    model.windows = windows_;
    return model;
  }
  void StartSender(bool checksum = false) {
    sent_ = std::make_unique<Outcomes>();  // keys begin anew
    TransferSender::Options options;
    options.worker_id = "p-0";
    options.incarnation = 11;
    options.fingerprint = Model();
    options.memory = source_.memory();
    options.transport = std::get<0>(GetParam());
    options.checksum = checksum;
    options.metrics = &sent_metrics_;
    sender_ = TransferSender::Create(std::move(options), clock_);
  }
  void StartReceiver() {
    TransferReceiver::Options options;
    options.worker_id = "d-0";
    options.incarnation = 22;
    options.fingerprint = Model();
    options.memory = destination_.memory();
    options.listen_address = "127.0.0.1:0";
    options.metrics = &received_metrics_;
    TransferReceiver::Callbacks callbacks{
        .on_complete =
            [this](std::uint64_t id, const HandoffRecord&, const ReceiveReport& report) {
              last_report_ = report;
              received_.Add(id, absl::OkStatus());
            },
        .on_failed = [this](std::uint64_t id,
                            const absl::Status& status) { received_.Add(id, status); }};
    auto receiver = TransferReceiver::Start(std::move(options), std::move(callbacks), clock_);
    ASSERT_TRUE(receiver.ok()) << receiver.status();
    receiver_ = *std::move(receiver);
  }
  // Blocks for a prompt in random order; those before `first` are holes.
  static std::vector<std::int32_t> SomeBlocks(const KvCut& cut, int num_tokens, int first,
                                              std::mt19937& random) {
    std::vector<std::int32_t> blocks(kPoolTokens / cut.block_size);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    blocks.resize(cut.BlocksFor(num_tokens));
    std::fill(blocks.begin(), blocks.begin() + first, -1);
    return blocks;
  }
  std::uint64_t Begin(const TransferTicket& ticket, const std::vector<std::int32_t>& blocks) {
    return sender_->Begin(ticket, blocks,
                          [this](std::uint64_t key, const absl::Status& status, const SendReport&) {
                            sent_->Add(key, status);
                          });
  }
  // Transfers a prompt whole and compares what later rows see.
  void Transfer(int num_tokens, std::mt19937& random) {
    const int num_holes = Model().FirstVisibleToken(num_tokens) / cuts().destination.block_size;
    const auto from = SomeBlocks(cuts().source, num_tokens, 0, random);
    const auto to = SomeBlocks(cuts().destination, num_tokens, num_holes, random);
    const TransferTicket ticket = receiver_->Reserve(to, num_tokens);
    const std::uint64_t key = Begin(ticket, from);
    const int num_blocks = static_cast<int>(from.size()), half = num_blocks / 2;
    for (int layer = 0; layer < kLayers; ++layer) sender_->PutLayer(key, layer, 0, half);
    for (int layer = 0; layer < kLayers; ++layer) sender_->PutLayer(key, layer, half, num_blocks);
    sender_->Complete(key, {});
    ASSERT_TRUE(sent_->Wait(key).ok()) << sent_->Wait(key);
    ASSERT_TRUE(received_.Wait(ticket.transfer_id).ok()) << received_.Wait(ticket.transfer_id);
    EXPECT_EQ(last_report_.transport, std::get<0>(GetParam()));
    for (int layer = 0; layer < kLayers; ++layer) {
      const int first = Model().FirstVisibleToken(layer, num_tokens);
      EXPECT_TRUE(source_.SameTokens(layer, first, num_tokens, from, destination_, to))
          << "layer " << layer << " of " << num_tokens << " tokens";
    }
  }

  RealClock clock_;
  std::vector<std::int32_t> windows_;
  metrics::Registry registry_;
  TransferMetrics sent_metrics_{registry_, "send"};
  TransferMetrics received_metrics_{registry_, "receive"};
  TestPool source_;
  TestPool destination_;
  std::unique_ptr<Outcomes> sent_;  // by the sender there is now
  Outcomes received_;
  ReceiveReport last_report_;
  std::unique_ptr<TransferReceiver> receiver_;
  std::unique_ptr<TransferSender> sender_;
};

TEST_P(TransferUnequalTest, EveryRankGetsItsHeadsOfEveryToken) {
  StartReceiver();
  StartSender();
  std::mt19937 random(1);
  for (const int num_tokens : {1, 16, 33, 700}) Transfer(num_tokens, random);
  EXPECT_EQ(sent_metrics_.bytes.value(), received_metrics_.bytes.value());
  EXPECT_EQ(received_metrics_.refused_blocks.value(), 0);
}

TEST_P(TransferUnequalTest, WindowsAndChecksumsToo) {
  windows_ = {64, 20, 200};
  StartReceiver();
  StartSender(/*checksum=*/true);
  std::mt19937 random(2);
  for (const int num_tokens : {15, 64, 130, 600}) Transfer(num_tokens, random);
  EXPECT_EQ(received_metrics_.refused_blocks.value(), 0);
}

// Once some blocks of a layer are on the wire the sender goes; both ends say so, once, and the same
// blocks serve the next transfer.
TEST_P(TransferUnequalTest, ASenderLostWithinALayerLeavesNothingBehind) {
  StartReceiver();
  StartSender();
  std::mt19937 random(3);
  const int num_tokens = 256;
  const auto from = SomeBlocks(cuts().source, num_tokens, 0, random);
  const auto to = SomeBlocks(cuts().destination, num_tokens, 0, random);
  const TransferTicket lost = receiver_->Reserve(to, num_tokens);
  const std::uint64_t lost_key = Begin(lost, from);
  sender_->PutLayer(lost_key, 0, 0, static_cast<int>(from.size()) / 2);
  ASSERT_TRUE(baton::testing::WaitFor([&] { return received_metrics_.bytes.value() > 0; },
                                      absl::Seconds(10)));

  sender_.reset();

  EXPECT_EQ(sent_->count(lost_key), 1);
  EXPECT_FALSE(received_.Wait(lost.transfer_id).ok());
  EXPECT_EQ(received_.count(lost.transfer_id), 1);
  StartSender();
  Transfer(num_tokens, random);
}

INSTANTIATE_TEST_SUITE_P(Cuts, TransferUnequalTest,
                         ::testing::Combine(::testing::Values("grpc", "shm"),
                                            ::testing::ValuesIn(kCuts)),
                         [](const auto& test) {
                           return absl::StrCat(std::get<0>(test.param), "_",
                                               std::get<1>(test.param).name);
                         });

}  // namespace
}  // namespace baton::kvtransfer
