#pragma once
#include <nccl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpu/nccl_reaper.h"
#include "kvtransfer/cuda/pair_resources.h"

namespace baton::kvtransfer::cuda {

// Contiguous bytes of a pool in device memory; null: received bytes that are dropped. Addresses and
// sizes are multiples of 16 bytes.
struct ByteRun {
  std::byte* at = nullptr;
  std::size_t bytes = 0;
};

// One end of a communicator of two ranks, the sender 0 and the receiver 1, with a stream of its
// own. Messages are lists of runs; both ends name as many bytes in the same order. Runs travel one
// by one from pool to pool (`direct`), or, if they are small, gathered into one piece of staging
// memory and scattered from there, by one launch at either end.
//
// Nothing here waits: Poll moves things on. Not thread-safe: one thread drives a pair.
class NcclPair {
 public:
  struct Options {
    int device = 0;
    int max_channels = 2;  // each takes about 6 MiB of device memory
    std::size_t max_message_bytes = 1 << 20;
    absl::Duration connect_timeout = absl::Seconds(20);
    absl::Duration message_timeout = absl::Seconds(10);
  };
  enum class Role { kSender = 0, kReceiver = 1 };
  static constexpr std::size_t kMaxUnderWay = PairResources::kSlots;

  // Starts to connect to the peer that gives the same id. `cache` must outlive the pair.
  static absl::StatusOr<std::unique_ptr<NcclPair>> Start(const Options& options, Role role,
                                                         const ncclUniqueId& id,
                                                         PairResourceCache& cache);
  // Requires that TakeForReaper was called and the reaper is done with what it gave.
  ~NcclPair();

  // Looks what has happened. Not OK: the pair is of no more use.
  //   kUnavailable       the peer is gone
  //   kDeadlineExceeded  the peer did not connect, or let a message wait for too long
  absl::Status Poll();
  bool connected() const { return state_ != State::kConnecting; }
  // Whether a message can be given now.
  bool ready() const { return state_ == State::kReady && under_way_.size() < kMaxUnderWay; }
  // Gives a message to the device, which may read or write the runs until it counts as completed.
  // Requires ready(), and at most max_message_bytes.
  absl::Status Transfer(std::span<const ByteRun> runs, bool direct);
  // Messages given, and of those the ones that are done, in order.
  std::uint64_t num_given() const { return num_given_; }
  std::uint64_t num_completed() const { return num_completed_; }

  // Communicator and stream, for the reaper; the pair is then of no more use.
  gpu::Doomed TakeForReaper() {
    return {std::exchange(comm_, nullptr), resources_->stream.get(), options_.device};
  }
  // Device memory that the pair takes, as far as it can be seen from outside of NCCL.
  std::size_t memory_bytes() const { return memory_bytes_; }

 private:
  enum class State { kConnecting, kReady, kLaunching };
  // A message under way. Its list of pieces must lie still until the device has copied it.
  struct Message {
    std::size_t slot = 0;
    absl::Time given;
  };

  NcclPair(const Options& options, Role role, PairResourceCache& cache)
      : options_(options), role_(role), cache_(cache) {}
  absl::Status MakePieces(std::span<const ByteRun> runs, std::size_t slot);
  absl::Status CopyStaged(std::size_t slot);
  absl::Status Issue(std::span<const ByteRun> runs, bool direct);
  absl::Status OnLaunched();
  absl::Status CollectCompleted();

  const Options options_;
  const Role role_;
  PairResourceCache& cache_;
  State state_ = State::kConnecting;
  absl::Time started_;
  ncclComm_t comm_ = nullptr;
  std::unique_ptr<PairResources> resources_;
  std::array<int, kMaxUnderWay> num_pieces_{};
  std::array<std::uint64_t, kMaxUnderWay> largest_piece_{};
  std::deque<Message> under_way_;
  std::uint64_t num_given_ = 0;
  std::uint64_t num_completed_ = 0;
  std::size_t free_before_ = 0;  // device memory, before NCCL took its part
  std::size_t memory_bytes_ = 0;
};

}  // namespace baton::kvtransfer::cuda
