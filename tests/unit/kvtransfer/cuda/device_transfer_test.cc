// Both facades, with pools in the emulation's device memory, over every transport.
#include "kvtransfer/device_transfer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include "absl/time/clock.h"
#include "common/clock.h"
#include "cuda_emulation/nccl/controls.h"
#include "cuda_emulation/runtime.h"
#include "gpu/device_buffer.h"
#include "tests/support/cuda_test.h"
#include "tests/support/transfer_rig.h"

namespace baton::kvtransfer {
namespace {

constexpr int kLayers = 3;
constexpr int kPoolTokens = 1024;
constexpr int kPromptTokens = 600;

struct Cuts {
  const char* name;
  KvCut source;
  KvCut destination;
};
constexpr Cuts kCuts[] = {{"equal", {16, 1}, {16, 1}},
                          {"equal_tp2", {16, 2}, {16, 2}},
                          {"tp1_to_2", {16, 1}, {16, 2}},
                          {"tp2_to_4", {16, 2}, {16, 4}},
                          {"blocks_of_64_to_16_tp3_to_1", {64, 3}, {16, 1}}};

// The device side of a TestPool, which keeps what the device should hold or was found to.
class DeviceSide {
 public:
  explicit DeviceSide(TestPool& host) : host_(host), memory_(host.memory()) {
    for (KvMemory::Rank& rank : memory_.ranks) {
      rank.device = 0;
      for (std::byte*& layer : rank.layers) {
        auto buffer = gpu::DeviceBuffer::Create(rank.block_bytes * memory_.num_blocks);
        EXPECT_TRUE(buffer.ok());
        layer = buffer->data();
        buffers_.push_back(*std::move(buffer));
      }
    }
  }
  const KvMemory& memory() const { return memory_; }
  void Upload() { CopyAll(cudaMemcpyHostToDevice); }
  void Download() { CopyAll(cudaMemcpyDeviceToHost); }

 private:
  void CopyAll(cudaMemcpyKind kind) {
    const KvMemory host = host_.memory();
    for (std::size_t rank = 0; rank < memory_.ranks.size(); ++rank) {
      const std::size_t bytes = memory_.ranks[rank].block_bytes * memory_.num_blocks;
      for (int layer = 0; layer < kLayers; ++layer) {
        std::byte* const ours = memory_.ranks[rank].layers[layer];
        std::byte* const theirs = host.ranks[rank].layers[layer];
        const bool up = kind == cudaMemcpyHostToDevice;
        testing::ExpectCuda(cudaMemcpy(up ? ours : theirs, up ? theirs : ours, bytes, kind));
      }
    }
  }
  TestPool& host_;
  KvMemory memory_;
  std::vector<gpu::DeviceBuffer> buffers_;
};

class DeviceTransferTest : public ::testing::TestWithParam<std::tuple<const char*, Cuts>> {
 protected:
  DeviceTransferTest()
      : cuts_(std::get<1>(GetParam())),
        source_(TestFingerprint(kLayers), cuts_.source, kPoolTokens / cuts_.source.block_size),
        destination_(TestFingerprint(kLayers), cuts_.destination,
                     kPoolTokens / cuts_.destination.block_size) {
    source_.Fill(1);
    on_source_.Upload();
  }
  ~DeviceTransferTest() override {
    sender_.reset();
    receiver_.reset();
    cuda_emulation::ClearFaults();
    cuda_emulation::GlobalNcclOptions().hang_on_peer_death = false;
    cuda_emulation::GlobalNcclOptions().bytes_per_second = 0;
    EXPECT_EQ(cuda_emulation::LiveCommunicators(), 0);
  }
  static const char* transport() { return std::get<0>(GetParam()); }

  DeviceTransfer Make(const KvMemory& memory) {
    auto made = MakeDeviceTransfer(TestFingerprint(kLayers), memory, {.max_channels = 1});
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  void StartReceiver() {
    receiver_.reset();
    received_ = std::make_unique<Outcomes>();
    TransferReceiver::Options options;
    options.worker_id = "d-0";
    options.incarnation = ++incarnation_;
    options.fingerprint = TestFingerprint(kLayers);
    options.memory = on_destination_.memory();
    DeviceTransfer device = Make(options.memory);
    options.access = device.access;
    options.side_channels = device.side_channels;
    options.listen_address = "127.0.0.1:0";
    auto receiver = TransferReceiver::Start(
        std::move(options),
        {.on_complete = [this](std::uint64_t id, const HandoffRecord&,
                               const ReceiveReport&) { received_->Add(id, absl::OkStatus()); },
         .on_failed = [this](std::uint64_t id,
                             const absl::Status& status) { received_->Add(id, status); }},
        clock_);
    ASSERT_TRUE(receiver.ok()) << receiver.status();
    receiver_ = *std::move(receiver);
  }
  void StartSender() {
    sender_.reset();
    sent_ = std::make_unique<Outcomes>();
    TransferSender::Options options;
    options.worker_id = "p-0";
    options.incarnation = 11;
    options.fingerprint = TestFingerprint(kLayers);
    options.memory = on_source_.memory();
    options.transport = transport();
    DeviceTransfer device = Make(options.memory);
    options.access = device.access;
    options.side_channels = device.side_channels;
    sender_ = TransferSender::Create(std::move(options), clock_);
  }
  static std::vector<std::int32_t> Blocks(const KvCut& cut) {
    std::vector<std::int32_t> blocks(cut.BlocksFor(kPromptTokens));
    std::iota(blocks.rbegin(), blocks.rend(), 1);
    return blocks;
  }
  // Sends one prompt, some layers of it.
  std::uint64_t Send(const TransferTicket& ticket, int num_layers = kLayers) {
    const std::uint64_t key = sender_->Begin(
        ticket, Blocks(cuts_.source),
        [this](std::uint64_t done, const absl::Status& status, const SendReport& report) {
          used_ = report.transport;
          sent_->Add(done, status);
        });
    const int num_blocks = cuts_.source.BlocksFor(kPromptTokens);
    for (int layer = 0; layer < num_layers; ++layer) {
      sender_->PutLayer(key, layer, 0, num_blocks / 2);
      sender_->PutLayer(key, layer, num_blocks / 2, num_blocks);
    }
    if (num_layers == kLayers) sender_->Complete(key, {});
    return key;
  }
  // Until the first blocks have landed: what follows is under way then, or about to be.
  void AwaitFirstBytes() {
    const auto touched = [&] {
      on_destination_.Download();
      const KvMemory memory = destination_.memory();
      const std::byte* layer = memory.ranks[0].layers[0];
      return std::any_of(layer, layer + memory.ranks[0].block_bytes * memory.num_blocks,
                         [](std::byte byte) { return byte != std::byte{0x5A}; });
    };
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!touched() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(touched()) << "nothing arrived";
  }
  // Overwrites the destination, so that what arrives can be told from what lay there.
  void Blank() {
    const KvMemory memory = destination_.memory();
    for (const KvMemory::Rank& rank : memory.ranks) {
      for (std::byte* layer : rank.layers) {
        std::memset(layer, 0x5A, rank.block_bytes * memory.num_blocks);
      }
    }
    on_destination_.Upload();
  }
  void ExpectDelivered() {
    on_destination_.Download();
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_TRUE(source_.SameTokens(layer, 0, kPromptTokens, Blocks(cuts_.source), destination_,
                                     Blocks(cuts_.destination)))
          << "layer " << layer;
    }
  }

  const Cuts cuts_;
  RealClock clock_;
  TestPool source_, destination_;
  DeviceSide on_source_{source_}, on_destination_{destination_};
  std::unique_ptr<Outcomes> sent_, received_;  // of the present ends: ids begin anew with them
  std::string used_;
  std::uint64_t incarnation_ = 20;
  std::unique_ptr<TransferReceiver> receiver_;
  std::unique_ptr<TransferSender> sender_;
};

TEST_P(DeviceTransferTest, DeliversEveryBlockFromDeviceToDevice) {
  StartReceiver();
  StartSender();
  for (int prompt = 0; prompt < 2; ++prompt) {
    const TransferTicket ticket = receiver_->Reserve(Blocks(cuts_.destination), kPromptTokens);

    const std::uint64_t key = Send(ticket);

    EXPECT_EQ(sent_->Wait(key), absl::OkStatus());
    EXPECT_EQ(received_->Wait(ticket.transfer_id), absl::OkStatus());
    EXPECT_EQ(used_, std::string(transport()) == "auto" ? "nccl" : transport());
    ExpectDelivered();
  }
}

// The receiver goes in the middle of a layer, in both ways NCCL shows it; restarted, it is served.
TEST_P(DeviceTransferTest, ReceiverThatGoesInMidLayerFailsTheTransferAndIsServedAfterARestart) {
  for (const bool hangs : {false, true}) {
    cuda_emulation::GlobalNcclOptions().hang_on_peer_death = hangs;
    cuda_emulation::GlobalNcclOptions().bytes_per_second = 2 << 20;
    Blank();
    StartReceiver();
    StartSender();
    const std::uint64_t key = Send(receiver_->Reserve(Blocks(cuts_.destination), kPromptTokens), 2);
    AwaitFirstBytes();
    receiver_.reset();
    cuda_emulation::GlobalNcclOptions().bytes_per_second = 0;
    EXPECT_FALSE(sent_->Wait(key).ok());

    StartReceiver();
    const TransferTicket ticket = receiver_->Reserve(Blocks(cuts_.destination), kPromptTokens);
    const std::uint64_t again = Send(ticket);
    EXPECT_EQ(sent_->Wait(again), absl::OkStatus());
    ExpectDelivered();
  }
}

TEST_P(DeviceTransferTest, SenderThatGoesInMidLayerFailsTheReservation) {
  for (const bool hangs : {false, true}) {
    cuda_emulation::GlobalNcclOptions().hang_on_peer_death = hangs;
    cuda_emulation::GlobalNcclOptions().bytes_per_second = 2 << 20;
    Blank();
    StartReceiver();
    StartSender();
    const TransferTicket ticket = receiver_->Reserve(Blocks(cuts_.destination), kPromptTokens);
    const std::uint64_t key = Send(ticket, 2);
    AwaitFirstBytes();
    sender_.reset();
    cuda_emulation::GlobalNcclOptions().bytes_per_second = 0;
    EXPECT_FALSE(sent_->Wait(key).ok());
    receiver_->Release(ticket.transfer_id);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceTransferTest,
                         ::testing::Combine(::testing::Values("auto", "nccl", "shm", "grpc"),
                                            ::testing::ValuesIn(kCuts)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" +
                                  std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace baton::kvtransfer
