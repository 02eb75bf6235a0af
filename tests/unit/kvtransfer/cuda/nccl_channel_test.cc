#include "kvtransfer/cuda/nccl_channel.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cuda_emulation/nccl/controls.h"
#include "cuda_emulation/runtime.h"
#include "tests/support/cuda_test.h"

// Both ends of a side channel in one process, on the emulated NCCL; the stream between them is a
// call.
namespace baton::kvtransfer::cuda {
namespace {

constexpr int kLayers = 2;
constexpr int kNumTokens = 128;

bool Await(const std::function<bool()>& done) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!done()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Microseconds(200));
  }
  return true;
}

// The pools of a worker group, and where each byte of the cache lies in them.
class Pools {
 public:
  Pools(const SliceShape& shape, int num_ranks, int block_size, std::mt19937& random)
      : heads_(shape.num_kv_heads), bytes_(shape.head_bytes), block_size_(block_size) {
    const int num_blocks = kNumTokens / block_size;
    for (int block = 0; block < num_blocks; ++block) table.push_back(2 * block + 1);
    std::shuffle(table.begin(), table.end(), random);
    for (int r = 0; r < num_ranks; ++r) {
      const std::size_t block_bytes =
          2 * KvHeadsOfRank(heads_, num_ranks, r).size() * block_size * bytes_;
      DeviceRank& rank = ranks.emplace_back();
      rank.block_bytes = block_bytes;
      for (int layer = 0; layer < kLayers; ++layer) {
        auto buffer = gpu::DeviceBuffer::Create(block_bytes * 2 * (num_blocks + 1));
        EXPECT_TRUE(buffer.ok());
        rank.layers.push_back(buffer->data());
        buffers_.push_back(*std::move(buffer));
      }
    }
  }
  // Offset in its block of (K or V, head, token) at `rank`; -1: not held there.
  std::ptrdiff_t OffsetOf(int rank, int part, int head, int token) const {
    const IndexRange held = KvHeadsOfRank(heads_, static_cast<int>(ranks.size()), rank);
    if (!held.contains(head)) return -1;
    return ((part * held.size() + head - held.begin) * block_size_ + token % block_size_) *
           static_cast<std::ptrdiff_t>(bytes_);
  }
  // Calls `visit` with the place of each head's K or V of each token of each layer and rank. Device
  // memory is host memory in the emulation.
  void ForEach(const std::function<void(int part, int layer, int head, int token, std::byte* at)>&
                   visit) const {
    for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int token = 0; token < kNumTokens; ++token) {
          for (int part = 0; part < 2; ++part) {
            for (int head = 0; head < heads_; ++head) {
              const std::ptrdiff_t offset = OffsetOf(r, part, head, token);
              if (offset < 0) continue;
              visit(part, layer, head, token,
                    ranks[r].layers[layer] + table[token / block_size_] * ranks[r].block_bytes +
                        offset);
            }
          }
        }
      }
    }
  }
  int block_size() const { return block_size_; }

  std::vector<DeviceRank> ranks;
  std::vector<std::int32_t> table;  // prompt block -> block

 private:
  const int heads_;
  const std::size_t bytes_;
  const int block_size_;
  std::vector<gpu::DeviceBuffer> buffers_;
};

std::byte Expected(int part, int layer, int head, int token, std::size_t i) {
  return static_cast<std::byte>((part * 101 + layer * 53 + head * 29 + token * 7 + i * 3) % 251);
}

class Rig {
 public:
  struct Tweaks {
    std::size_t direct_min_bytes = std::size_t{1} << 40;
    absl::Duration message_timeout = absl::Seconds(10);
    absl::Duration idle_timeout = absl::Minutes(1);
    std::function<bool(int layer, int block)> grant = [](int, int) { return true; };
  };
  Rig(const SliceShape& shape, std::mt19937& random, Tweaks tweaks, NcclShared& send_shared,
      NcclShared& receive_shared)
      : shape_(shape),
        tweaks_(std::move(tweaks)),
        source(shape, shape.source_ranks, shape.source_block_size, random),
        destination(shape, shape.destination_ranks, shape.destination_block_size, random) {
    source.ForEach([&](int part, int layer, int head, int token, std::byte* at) {
      for (std::size_t i = 0; i < shape_.head_bytes; ++i) {
        at[i] = Expected(part, layer, head, token, i);
      }
    });
    receiver = MakeNcclReceiver(
        OptionsOf(destination), receive_shared,
        {.claim = [this](const auto& message) { return Claim(message); },
         .landed = [this](const auto& message, int index,
                          const absl::Status& status) { Landed(message, index, status); },
         .on_failed = [this](const absl::Status& why) { Note(&receive_failure_, why); }});
    sender = MakeNcclSender(
        OptionsOf(source), send_shared,
        {.write =
             [this](const SideMessage& message) {
               Note(&receive_failure_, receiver->OnMessage(message));
               return true;
             },
         .on_writable = [this] { ++num_writable; },
         .on_released = [this](std::uint64_t id) { Released(id); },
         .on_failed = [this](const absl::Status& why) { Note(&send_failure_, why); }});
  }
  ~Rig() {
    sender->Stop();
    receiver->Stop();
    EXPECT_EQ(num_released, num_taken) << "every put is released";
    EXPECT_EQ(num_claimed, num_landed + num_lost) << "every claim is answered";
  }

  // Puts every block of every rank and layer, several blocks at a time; returns how many were
  // taken.
  void PutAll() {
    const int num_blocks = static_cast<int>(source.table.size());
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int first = 0; first < num_blocks; first += 3) {
        for (int rank = 0; rank < shape_.source_ranks; ++rank) {
          const int last = std::min(num_blocks, first + 3);
          const SidePut put{.put_id = next_put_++,
                            .transfer_id = 9,
                            .incarnation = 4,
                            .source_rank = rank,
                            .layer = layer,
                            .first_block = first,
                            .blocks = {source.table.begin() + first, source.table.begin() + last}};
          bool taken = false;
          Await([&] { return (taken = sender->TryPut(put)) || failed() || quit; });
          if (!taken) return;
          ++num_taken;
        }
      }
    }
  }
  bool failed() const { return !send_failure().ok() || !receive_failure().ok(); }
  absl::Status send_failure() const { return Read(send_failure_); }
  absl::Status receive_failure() const { return Read(receive_failure_); }

  const SliceShape shape_;
  const Tweaks tweaks_;
  Pools source, destination;
  std::unique_ptr<ReceiveSideChannel> receiver;
  std::unique_ptr<SendSideChannel> sender;
  std::atomic<int> num_taken{0}, num_released{0}, num_claimed{0}, num_landed{0}, num_lost{0},
      num_writable{0};
  std::atomic<bool> quit{false};  // nothing more is put

 private:
  NcclChannelOptions OptionsOf(const Pools& pools) const {
    return {.peer = "peer",
            .shape = shape_,
            .ranks = pools.ranks,
            .pair = {.max_channels = 1,
                     .max_message_bytes = 256 << 10,
                     .connect_timeout = absl::Seconds(10),
                     .message_timeout = tweaks_.message_timeout},
            .direct_min_bytes = tweaks_.direct_min_bytes,
            .max_puts = 4,
            .idle_timeout = tweaks_.idle_timeout};
  }
  std::vector<ClaimedBlock> Claim(const SideMessage& message) {
    EXPECT_EQ(message.transfer_id, 9u);
    const auto& announced = std::get<AnnounceBlocks>(message.body);
    std::vector<ClaimedBlock> blocks;
    for (int i = 0; i < announced.num_blocks; ++i) {
      const int block = announced.first_block + i;
      blocks.push_back({.granted = tweaks_.grant(announced.layer, block), .placements = {}});
      if (!blocks.back().granted) continue;
      ++num_claimed;
      Place(announced, block, &blocks.back().placements);
    }
    return blocks;
  }
  void Place(const AnnounceBlocks& announced, int block, std::vector<Placement>* placements) {
    const bool equal = shape_.source_ranks == shape_.destination_ranks &&
                       shape_.source_block_size == shape_.destination_block_size;
    if (equal) {
      const DeviceRank& to = destination.ranks[announced.source_rank];
      placements->push_back({announced.source_rank, 0,
                             to.layers[announced.layer] + destination.table[block] * to.block_bytes,
                             to.block_bytes});
      return;
    }
    const int step = std::min(shape_.source_block_size, shape_.destination_block_size);
    for (int rank = 0; rank < shape_.destination_ranks; ++rank) {
      for (int part = 0; part < 2; ++part) {
        for (int head = 0; head < shape_.num_kv_heads; ++head) {
          for (int row = 0; row < shape_.source_block_size; row += step) {
            const int token = block * shape_.source_block_size + row;
            const auto from = source.OffsetOf(announced.source_rank, part, head, token);
            const auto at = destination.OffsetOf(rank, part, head, token);
            if (from < 0 || at < 0) continue;
            const DeviceRank& to = destination.ranks[rank];
            const std::int32_t block_id = destination.table[token / destination.block_size()];
            placements->push_back({rank, static_cast<std::size_t>(from),
                                   to.layers[announced.layer] + block_id * to.block_bytes + at,
                                   step * shape_.head_bytes});
          }
        }
      }
    }
  }
  void Landed(const SideMessage&, int, const absl::Status& status) {
    ++(status.ok() ? num_landed : num_lost);
  }
  void Released(std::uint64_t id) {
    std::lock_guard lock(mutex_);
    EXPECT_TRUE(released_.insert(id).second) << "released twice";
    ++num_released;
  }
  void Note(absl::Status* to, const absl::Status& status) {
    std::lock_guard lock(mutex_);
    to->Update(status);
  }
  absl::Status Read(const absl::Status& from) const {
    std::lock_guard lock(mutex_);
    return from;
  }

  mutable std::mutex mutex_;
  absl::Status send_failure_, receive_failure_;
  std::set<std::uint64_t> released_;
  std::uint64_t next_put_ = 1;
};

class NcclChannelTest : public ::testing::Test {
 protected:
  void TearDown() override {
    cuda_emulation::ClearFaults();
    auto& options = cuda_emulation::GlobalNcclOptions();
    options.hang_on_peer_death = false;
    options.bytes_per_second = 0;
    EXPECT_EQ(cuda_emulation::LiveCommunicators(), 0);
  }
  static SliceShape Equal(int ranks = 1) {
    return {.num_kv_heads = 4,
            .head_bytes = 32,
            .source_block_size = 16,
            .source_ranks = ranks,
            .destination_block_size = 16,
            .destination_ranks = ranks};
  }
  std::mt19937 random_{1};
  NcclShared send_{gpu::NcclReaper::Options{}, 64, nullptr};
  NcclShared receive_{gpu::NcclReaper::Options{}, 64, nullptr};
};

void ExpectAllArrived(const Rig& rig) {
  int wrong = 0;
  rig.destination.ForEach([&](int part, int layer, int head, int token, std::byte* at) {
    for (std::size_t i = 0; i < rig.shape_.head_bytes; ++i) {
      wrong += at[i] != Expected(part, layer, head, token, i);
    }
  });
  EXPECT_EQ(wrong, 0);
}

// Property: between groups of any cuts every byte arrives in its place.
TEST_F(NcclChannelTest, EveryByteArrivesBetweenEqualAndUnequalGroups) {
  const int sizes[] = {16, 32, 64};
  for (int round = 0; round < 14; ++round) {
    const bool equal = round % 4 == 0;
    SliceShape shape{.num_kv_heads = 1 + static_cast<int>(random_() % 5),
                     .head_bytes = 32,
                     .source_block_size = sizes[random_() % 3],
                     .source_ranks = 1 + static_cast<int>(random_() % 4),
                     .destination_block_size = sizes[random_() % 3],
                     .destination_ranks = 1 + static_cast<int>(random_() % 4)};
    if (equal) shape = Equal(1 + round / 4 % 2);
    SCOPED_TRACE(absl::StrCat("round ", round, ": ", shape.num_kv_heads, " heads, ranks ",
                              shape.source_ranks, " to ", shape.destination_ranks, ", blocks ",
                              shape.source_block_size, " to ", shape.destination_block_size));
    Rig rig(shape, random_, {.direct_min_bytes = round % 8 == 0 ? 1u : 1u << 30}, send_, receive_);
    rig.PutAll();
    bool finished = false;
    std::atomic<bool> after_landing{false};
    ASSERT_TRUE(Await([&] {
      if (!finished) {
        finished = rig.sender->TryNotify(
            [&] { return rig.receiver->AfterLanding([&] { after_landing = true; }).ok(); });
      }
      return after_landing.load() || rig.failed();
    }));
    EXPECT_TRUE(rig.send_failure().ok()) << rig.send_failure().ToString();
    EXPECT_TRUE(rig.receive_failure().ok()) << rig.receive_failure().ToString();
    EXPECT_EQ(rig.num_landed, rig.num_claimed);
    ExpectAllArrived(rig);
    EXPECT_TRUE(Await([&] { return rig.num_released == rig.num_taken; }));
  }
}

TEST_F(NcclChannelTest, BlocksThatNobodyWantsAreReceivedAndDropped) {
  for (const std::size_t direct_min_bytes : {std::size_t{1}, std::size_t{1} << 30}) {
    Rig rig(Equal(), random_,
            {.direct_min_bytes = direct_min_bytes,
             .grant = [](int layer, int block) { return (layer + block) % 3 != 0; }},
            send_, receive_);
    rig.PutAll();
    EXPECT_TRUE(Await([&] { return rig.num_released == rig.num_taken; }));
    EXPECT_TRUE(Await([&] { return rig.num_landed == rig.num_claimed; }));
    EXPECT_FALSE(rig.failed());
  }
}

TEST_F(NcclChannelTest, IdlePairsCloseAndOpenAgain) {
  Rig rig(Equal(2), random_, {.idle_timeout = absl::Milliseconds(30)}, send_, receive_);
  for (int round = 0; round < 2; ++round) {
    rig.PutAll();
    EXPECT_TRUE(Await([&] { return rig.num_released == rig.num_taken; }));
    EXPECT_TRUE(Await([&] { return cuda_emulation::LiveCommunicators() == 0; }));
  }
  EXPECT_FALSE(rig.failed()) << rig.send_failure() << rig.receive_failure();
}

TEST_F(NcclChannelTest, LinkUsedLongestAgoMakesRoomForAnother) {
  NcclShared narrow(gpu::NcclReaper::Options{}, /*max_pairs=*/1, nullptr);
  Rig first(Equal(), random_, {}, narrow, receive_);
  first.PutAll();
  EXPECT_TRUE(Await([&] { return first.num_released == first.num_taken; }));
  Rig second(Equal(), random_, {}, narrow, receive_);
  second.PutAll();
  EXPECT_TRUE(Await([&] { return second.num_released == second.num_taken; }));
  first.PutAll();
  EXPECT_TRUE(Await([&] { return first.num_released == first.num_taken; }));
  EXPECT_FALSE(first.failed()) << first.send_failure();
  EXPECT_FALSE(second.failed()) << second.send_failure();
}

// Either end dies in the middle of a put, in both ways that NCCL shows it; another link goes on.
TEST_F(NcclChannelTest, DeathOfOneEndInTheMiddleLeavesBooksBalancedAndOthersAlone) {
  for (const bool hangs : {false, true}) {
    for (const bool sender_dies : {false, true}) {
      SCOPED_TRACE(absl::StrCat("hangs ", hangs, ", sender dies ", sender_dies));
      auto& options = cuda_emulation::GlobalNcclOptions();
      options.hang_on_peer_death = hangs;
      options.bytes_per_second = 256 << 10;  // 64 KiB take a quarter of a second
      Rig other(Equal(), random_, {}, send_, receive_);
      Rig rig(Equal(), random_, {}, send_, receive_);
      std::thread putting([&] { rig.PutAll(); });
      EXPECT_TRUE(Await([&] { return rig.num_claimed > 0; }));
      // The stream breaks with the peer's death; that is what the survivor's link sees.
      if (sender_dies) {
        rig.sender->Stop();
        rig.receiver->Lose();
        rig.receiver->Stop();
      } else {
        rig.receiver->Stop();
        rig.sender->Stop();
      }
      options.bytes_per_second = 0;
      rig.quit = true;
      putting.join();
      other.PutAll();
      EXPECT_TRUE(Await([&] { return other.num_released == other.num_taken; }));
      EXPECT_FALSE(other.failed()) << other.send_failure() << other.receive_failure();
    }
  }
}

TEST_F(NcclChannelTest, PeerThatStopsTakingIsGivenUpAfterTheDeadline) {
  cuda_emulation::GlobalNcclOptions().hang_on_peer_death = true;
  Rig rig(Equal(), random_, {.message_timeout = absl::Milliseconds(100)}, send_, receive_);
  rig.PutAll();
  EXPECT_TRUE(Await([&] { return rig.num_released == rig.num_taken; }));
  rig.receiver->Stop();
  rig.PutAll();
  EXPECT_TRUE(Await([&] { return !rig.send_failure().ok(); }));
  EXPECT_EQ(rig.send_failure().code(), absl::StatusCode::kDeadlineExceeded) << rig.send_failure();
  EXPECT_TRUE(Await([&] { return rig.num_released == rig.num_taken; }));
}

// Every NCCL and CUDA call of a channel fails once: the channel says so, and lets go of everything.
TEST_F(NcclChannelTest, EveryFailingCallEndsTheLinkAndNothingElse) {
  const std::vector<std::pair<const char*, int>> faults = {
      {"ncclGetUniqueId", ncclSystemError},
      {"ncclCommInitRankConfig", ncclInternalError},
      {"ncclGroupStart", ncclInternalError},
      {"ncclGroupEnd", ncclInternalError},
      {"ncclSend", ncclInternalError},
      {"ncclRecv", ncclInternalError},
      {"ncclCommGetAsyncError", ncclRemoteError},
      {"cudaMalloc", cudaErrorMemoryAllocation},
      {"cudaHostAlloc", cudaErrorMemoryAllocation},
      {"cudaStreamCreateWithFlags", cudaErrorUnknown},
      {"cudaEventCreateWithFlags", cudaErrorUnknown},
      {"cudaEventRecord", cudaErrorUnknown},
      {"cudaEventQuery", cudaErrorUnknown},
      {"cudaMemcpyAsync", cudaErrorUnknown},
      {"cudaLaunchKernelExC", cudaErrorUnknown},
      {"cudaSetDevice", cudaErrorInvalidDevice}};
  for (const auto& [call, error] : faults) {
    SCOPED_TRACE(call);
    NcclShared shared(gpu::NcclReaper::Options{}, 64, nullptr);  // nothing to reuse
    Rig rig(Equal(), random_, {.message_timeout = absl::Milliseconds(300)}, shared, shared);
    cuda_emulation::InjectFault({call, static_cast<cudaError_t>(error), 0, 1});
    rig.PutAll();
    EXPECT_TRUE(Await([&] { return rig.failed(); }));
    rig.sender->Stop();
    rig.receiver->Stop();
    cuda_emulation::ClearFaults();
    EXPECT_EQ(cuda_emulation::LiveCommunicators(), 0);
  }
}

}  // namespace
}  // namespace baton::kvtransfer::cuda
