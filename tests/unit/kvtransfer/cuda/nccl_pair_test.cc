#include "kvtransfer/cuda/nccl_pair.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "absl/time/clock.h"
#include "cuda_emulation/nccl/controls.h"
#include "cuda_emulation/runtime.h"
#include "gpu/nccl_reaper.h"
#include "tests/support/cuda_test.h"

// Both ends of a pair in one process, on the emulated NCCL.
namespace baton::kvtransfer::cuda {
namespace {

using Bytes = std::vector<unsigned char>;

class NcclPairTest : public testing::CudaTest {
 protected:
  struct Ends {
    std::unique_ptr<NcclPair> sender, receiver;
  };

  Ends Connect(NcclPair::Options options = {}) {
    options.max_channels = 1;
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    auto sender = NcclPair::Start(options, NcclPair::Role::kSender, id, cache_);
    auto receiver = NcclPair::Start(options, NcclPair::Role::kReceiver, id, cache_);
    EXPECT_TRUE(sender.ok()) << sender.status().ToString();
    EXPECT_TRUE(receiver.ok()) << receiver.status().ToString();
    Ends ends{*std::move(sender), *std::move(receiver)};
    EXPECT_TRUE(Drive(ends, [&] { return ends.sender->ready() && ends.receiver->ready(); }).ok());
    return ends;
  }
  // Polls both ends until `done` or an error.
  absl::Status Drive(Ends& ends, const std::function<bool()>& done) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!done()) {
      if (absl::Now() > deadline) return absl::DeadlineExceededError("test");
      if (absl::Status status = ends.sender->Poll(); !status.ok()) return status;
      if (absl::Status status = ends.receiver->Poll(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  void End(Ends& ends) {
    reaper_.Abort({ends.sender->TakeForReaper(), ends.receiver->TakeForReaper()});
    EXPECT_EQ(cuda_emulation::LiveCommunicators(), 0);
  }
  void TearDown() override {
    cuda_emulation::ClearFaults();
    cuda_emulation::GlobalNcclOptions().hang_on_peer_death = false;
    cuda_emulation::GlobalNcclOptions().abort_hangs = false;
  }

  PairResourceCache cache_;
  gpu::NcclReaper reaper_{gpu::NcclReaper::Options{}};
};

// Property: whatever the runs, every byte lands where the receiver's runs say; runs that it drops
// leave the rest in place.
TEST_F(NcclPairTest, RunsArriveWhereTheReceiverWantsThem) {
  std::mt19937 random(5);
  Ends ends = Connect();
  constexpr std::size_t kUnits = 2048;
  for (int message = 0; message < 12; ++message) {
    SCOPED_TRACE(message);
    const bool direct = message % 2 == 0;
    Bytes bytes(kUnits * 16);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random() % 251);
    Bytes expected(bytes.size(), 0x11);
    const auto from = ToDevice(bytes), to = ToDevice(expected);
    std::vector<ByteRun> sent, received;
    for (std::size_t at = 0; at + 400 < kUnits; at += 400) {
      const std::size_t source = random() % (kUnits - 300), size = 16 * (1 + random() % 300);
      sent.push_back({.at = from.data() + source * 16, .bytes = size});
      const bool drop = random() % 4 == 0;
      received.push_back({.at = drop ? nullptr : to.data() + at * 16, .bytes = size});
      if (!drop) std::copy_n(bytes.begin() + source * 16, size, expected.begin() + at * 16);
    }

    ASSERT_TRUE(Drive(ends, [&] { return ends.sender->ready() && ends.receiver->ready(); }).ok());
    ASSERT_TRUE(ends.sender->Transfer(sent, direct).ok());
    ASSERT_TRUE(ends.receiver->Transfer(received, direct).ok());
    ASSERT_TRUE(Drive(ends, [&] {
                  return ends.receiver->num_completed() == ends.receiver->num_given() &&
                         ends.sender->num_completed() == ends.sender->num_given();
                }).ok());

    EXPECT_EQ(ToHost<unsigned char>(to, expected.size()), expected);
  }
  EXPECT_GT(ends.sender->memory_bytes(), std::size_t{6} << 20);
  End(ends);
}

TEST_F(NcclPairTest, MessagesUnderWayAreBounded) {
  Ends ends = Connect();
  const auto from = ToDevice(Bytes(64, 1));
  const std::vector<ByteRun> runs = {{.at = from.data(), .bytes = 64}};
  for (std::size_t i = 0; i < NcclPair::kMaxUnderWay; ++i) {
    ASSERT_TRUE(Drive(ends, [&] { return ends.sender->ready(); }).ok());
    ASSERT_TRUE(ends.sender->Transfer(runs, true).ok());
  }
  for (int poll = 0; poll < 50; ++poll) ASSERT_TRUE(ends.sender->Poll().ok());
  EXPECT_FALSE(ends.sender->ready());
  EXPECT_EQ(ends.sender->num_completed(), 0u);
  End(ends);
}

TEST_F(NcclPairTest, PeerThatNeverComesIsGivenUp) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  auto pair = NcclPair::Start({.connect_timeout = absl::Milliseconds(20)}, NcclPair::Role::kSender,
                              id, cache_);
  ASSERT_TRUE(pair.ok());
  absl::Status status;
  while (status.ok()) status = (*pair)->Poll();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status.ToString();
  reaper_.Abort({(*pair)->TakeForReaper()});
}

TEST_F(NcclPairTest, DeadPeerIsToldByTheNetworkOrByTheDeadline) {
  for (const bool hangs : {false, true}) {
    SCOPED_TRACE(hangs);
    cuda_emulation::GlobalNcclOptions().hang_on_peer_death = hangs;
    Ends ends = Connect({.message_timeout = absl::Milliseconds(hangs ? 50 : 10000)});
    const auto from = ToDevice(Bytes(4096, 1));
    ASSERT_TRUE(
        ends.sender->Transfer(std::vector<ByteRun>{{.at = from.data(), .bytes = 4096}}, false)
            .ok());
    reaper_.Abort({ends.receiver->TakeForReaper()});
    absl::Status status;
    while (status.ok()) status = ends.sender->Poll();
    EXPECT_EQ(status.code(),
              hangs ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnavailable)
        << status.ToString();
    reaper_.Abort({ends.sender->TakeForReaper()});
    EXPECT_EQ(cuda_emulation::LiveCommunicators(), 0);
  }
}

TEST_F(NcclPairTest, EveryFailingCallIsAStatus) {
  for (const std::string call :
       {"ncclSend", "ncclGroupEnd", "ncclGroupStart", "ncclCommGetAsyncError"}) {
    SCOPED_TRACE(call);
    Ends ends = Connect();
    const auto from = ToDevice(Bytes(64, 1));
    cuda_emulation::InjectNcclFault(call.c_str(), ncclInternalError);
    const absl::Status status =
        ends.sender->Transfer(std::vector<ByteRun>{{.at = from.data(), .bytes = 64}}, false);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status.ToString();
    EXPECT_NE(status.message().find(call), std::string::npos) << status.ToString();
    End(ends);
  }
}

TEST_F(NcclPairTest, NoMemoryIsAStatus) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  cuda_emulation::InjectFault({"cudaMalloc", cudaErrorMemoryAllocation});
  const auto pair = NcclPair::Start({}, NcclPair::Role::kSender, id, cache_);
  EXPECT_EQ(pair.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(NcclPairTest, IdlePairsAreFinishedByBothEnds) {
  Ends ends = Connect();
  reaper_.Finish({ends.sender->TakeForReaper(), ends.receiver->TakeForReaper()});
  EXPECT_EQ(cuda_emulation::LiveCommunicators(), 0);
}

TEST_F(NcclPairTest, AbortThatHangsIsReportedAfterItsDeadline) {
  Ends ends = Connect();
  std::string told;
  const gpu::NcclReaper reaper(
      {.timeout = absl::Milliseconds(30), .on_hang = [&](const std::string& what) {
         told = what;
         cuda_emulation::GlobalNcclOptions().abort_hangs = false;
       }});
  cuda_emulation::GlobalNcclOptions().abort_hangs = true;
  reaper.Abort({ends.sender->TakeForReaper(), ends.receiver->TakeForReaper()});
  EXPECT_EQ(told, "aborting 2 NCCL communicators did not end within 30ms");
}

}  // namespace
}  // namespace baton::kvtransfer::cuda
