// Drivers, links and the ring with real threads but without gRPC, so that TSan can watch.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "kvtransfer/host_connector.h"
#include "kvtransfer/pool_access.h"
#include "kvtransfer/receive_hub.h"
#include "kvtransfer/receive_link.h"
#include "kvtransfer/send_driver.h"
#include "tests/support/loopback_stream.h"
#include "tests/support/transfer_rig.h"

namespace baton::kvtransfer {
namespace {

constexpr int kLayers = 3;
constexpr int kTokensEach = 16;
constexpr int kTransfers = 24;

// Dials one receiver; any of its streams can be cut.
class LoopbackNetwork {
 public:
  explicit LoopbackNetwork(GrpcStreamServer::Accept accept) : accept_(std::move(accept)) {}
  ~LoopbackNetwork() {
    for (const auto& stream : streams_) stream->Join();
  }
  std::shared_ptr<FrameStream> Dial(FrameStream::Events events) {
    auto stream = std::make_shared<LoopbackStream>(std::move(events));
    stream->Start(accept_);
    absl::MutexLock lock(&mutex_);
    streams_.push_back(stream);
    return stream;
  }
  void CutAll() {
    std::vector<std::shared_ptr<LoopbackStream>> streams;
    {
      absl::MutexLock lock(&mutex_);
      streams = streams_;
    }
    for (const auto& stream : streams) stream->Close(absl::UnavailableError("cable cut"));
  }

 private:
  const GrpcStreamServer::Accept accept_;
  absl::Mutex mutex_;
  std::vector<std::shared_ptr<LoopbackStream>> streams_ ABSL_GUARDED_BY(mutex_);
};

struct Setting {
  const char* name;
  const char* transport;
  KvCut source;
  KvCut destination;
};

class TransferThreadsTest : public ::testing::TestWithParam<Setting> {
 protected:
  TransferThreadsTest()
      : source_(TestFingerprint(kLayers), GetParam().source,
                kTransfers * GetParam().source.BlocksFor(kTokensEach)),
        destination_(TestFingerprint(kLayers), GetParam().destination,
                     kTransfers * GetParam().destination.BlocksFor(kTokensEach)),
        hub_(std::make_shared<ReceiveHub>(
            ReceiveHub::Options{
                .table = {.worker_id = "d-0",
                          .incarnation = 5,
                          .fingerprint = TestFingerprint(kLayers),
                          .cut = destination_.cut(),
                          .limits = {.lease = absl::Seconds(20), .max_age = absl::Minutes(1)}},
                .writer = NewHostPoolAccess(destination_.memory())->NewWriter()},
            TransferReceiver::Callbacks{
                .on_complete = [this](
                                   std::uint64_t id, const HandoffRecord&,
                                   const ReceiveReport&) { received_.Add(id, absl::OkStatus()); },
                .on_failed = [this](std::uint64_t id,
                                    const absl::Status& why) { received_.Add(id, why); }},
            clock_)),
        network_([this](std::shared_ptr<ReplyStream> stream) {
          return std::make_unique<ReceiveLink>(link_options_, hub_, std::move(stream));
        }) {
    source_.Fill(3);
    auto connector = std::make_unique<HostConnector>(
        HostConnector::Options{.worker_id = "p-0",
                               .incarnation = 4,
                               .fingerprint = TestFingerprint(kLayers),
                               .transport = GetParam().transport,
                               .ring_slots = 2,
                               .max_frame_bytes = 16384},
        [this](const std::string&, std::size_t, FrameStream::Events events) {
          return network_.Dial(std::move(events));
        });
    EXPECT_TRUE(connector->RegisterMemory(source_.memory()).ok());
    sender_ = std::make_unique<SendDriver>(
        SendDriver::Options{.table = {.fingerprint = TestFingerprint(kLayers),
                                      .cut = source_.cut(),
                                      .num_blocks = source_.memory().num_blocks,
                                      .max_frame_bytes = 2 * source_.block_bytes(),
                                      .checksum = true}},
        std::move(connector), clock_);
  }
  static std::vector<std::int32_t> BlocksOf(const TestPool& pool, int transfer) {
    std::vector<std::int32_t> blocks(pool.cut().BlocksFor(kTokensEach));
    std::iota(blocks.begin(), blocks.end(), transfer * static_cast<int>(blocks.size()));
    return blocks;
  }
  void BeginAll() {
    for (int i = 0; i < kTransfers; ++i) {
      tickets_.push_back(hub_->Reserve(BlocksOf(destination_, i), kTokensEach));
      tickets_[i].address = "loopback";
      keys_.push_back(sender_->Begin(tickets_[i], BlocksOf(source_, i),
                                     [this](std::uint64_t key, const absl::Status& status,
                                            const SendReport&) { sent_.Add(key, status); }));
    }
  }
  void PutAndComplete(int i) {
    const int num_blocks = source_.cut().BlocksFor(kTokensEach);
    for (int layer = 0; layer < kLayers; ++layer) {
      sender_->PutLayer(keys_[i], layer, 0, num_blocks / 2);
      sender_->PutLayer(keys_[i], layer, num_blocks / 2, num_blocks);
    }
    sender_->Complete(keys_[i], {});
  }
  std::byte* FirstBlockOf(int transfer) {
    return destination_.at(0, BlocksOf(destination_, transfer)[0]);
  }
  void ExpectEqual(int transfer) {
    for (int layer = 0; layer < kLayers; ++layer) {
      ASSERT_TRUE(source_.SameTokens(layer, 0, kTokensEach, BlocksOf(source_, transfer),
                                     destination_, BlocksOf(destination_, transfer)));
    }
  }

  RealClock clock_;
  TestPool source_;
  TestPool destination_;
  Outcomes sent_;
  Outcomes received_;
  const ReceiveLink::Options link_options_{
      .worker_id = "d-0", .incarnation = 5, .cut = GetParam().destination};
  std::shared_ptr<ReceiveHub> hub_;
  LoopbackNetwork network_;
  std::unique_ptr<SendDriver> sender_;  // goes first: it waits for its links
  std::vector<TransferTicket> tickets_;
  std::vector<std::uint64_t> keys_;
};

TEST_P(TransferThreadsTest, SeveralEnginesPutAtOnce) {
  BeginAll();
  std::thread other([this] {
    for (int i = 0; i < kTransfers; i += 2) PutAndComplete(i);
  });
  for (int i = 1; i < kTransfers; i += 2) PutAndComplete(i);
  other.join();

  for (int i = 0; i < kTransfers; ++i) {
    ASSERT_TRUE(sent_.Wait(keys_[i]).ok()) << sent_.Wait(keys_[i]);
    ASSERT_TRUE(received_.Wait(tickets_[i].transfer_id).ok());
    ExpectEqual(i);
  }
}

// Both owners cancel and the link is cut while blocks move; every outcome comes once, and blocks
// given back are not touched again.
TEST_P(TransferThreadsTest, CancelsAndCutsRaceWithTheBytes) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    tickets_.clear();
    keys_.clear();
    BeginAll();
    std::vector<bool> released(kTransfers, false);
    std::thread decode([&] {
      std::mt19937 random(seed);
      for (int i = 0; i < kTransfers; ++i) {
        if (random() % 4 != 0) continue;
        hub_->Release(tickets_[i].transfer_id);
        released[i] = !received_.Has(tickets_[i].transfer_id);
        if (released[i]) std::memset(FirstBlockOf(i), 0x33, destination_.block_bytes());
      }
    });
    std::thread router([&] {
      std::mt19937 random(seed + 100);
      for (int i = 0; i < kTransfers; ++i) {
        if (random() % 5 == 0) sender_->Abort(keys_[i], absl::CancelledError("client gone"));
        if (random() % 20 == 0) network_.CutAll();
      }
    });
    for (int i = 0; i < kTransfers; ++i) PutAndComplete(i);
    decode.join();
    router.join();

    for (int i = 0; i < kTransfers; ++i) {
      const absl::Status status = sent_.Wait(keys_[i]);
      EXPECT_NE(status.code(), absl::StatusCode::kUnknown);
      EXPECT_EQ(sent_.count(keys_[i]), 1);
      const std::uint64_t id = tickets_[i].transfer_id;
      if (!status.ok() && !released[i]) hub_->Release(id);  // it may never have begun
      if (released[i]) {
        EXPECT_EQ(received_.count(id), 0);
        EXPECT_EQ(*FirstBlockOf(i), std::byte{0x33});
      } else if (status.ok()) {
        EXPECT_TRUE(received_.Wait(id).ok());
        EXPECT_EQ(received_.count(id), 1);
        ExpectEqual(i);
      }
    }
  }
}

TEST_P(TransferThreadsTest, DestroyingTheSenderTellsEveryOwner) {
  BeginAll();
  for (int i = 0; i < kTransfers / 2; ++i) PutAndComplete(i);

  sender_.reset();

  for (int i = 0; i < kTransfers; ++i) EXPECT_EQ(sent_.count(keys_[i]), 1);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransferThreadsTest,
                         ::testing::Values(Setting{"grpc", "grpc", {4, 1}, {4, 1}},
                                           Setting{"shm", "shm", {4, 1}, {4, 1}},
                                           Setting{"grpc_unequal", "grpc", {4, 2}, {8, 3}},
                                           Setting{"shm_unequal", "shm", {8, 4}, {2, 2}}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace baton::kvtransfer
