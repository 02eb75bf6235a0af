#include "engine/parallel/thread_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/status.h"
#include "engine/threads/waiting_point.h"

namespace baton::engine {
namespace {

constexpr std::align_val_t kAlignment{64};

struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeAligned>;

}  // namespace

struct ThreadCommunicator::Offer {
  const void* data = nullptr;
  std::size_t size = 0;
};

struct ThreadCommunicator::Group {
  explicit Group(const ThreadGroupOptions& settings) : options(settings) {
    for (auto& each : offers) each.resize(settings.world_size);
  }

  absl::Status Wait();
  void Abort(const absl::Status& status);
  absl::Status Failure() const {
    absl::MutexLock lock(&mutex);
    return failure;
  }
  const ThreadGroupOptions options;
  alignas(64) std::atomic<int> num_arrived{0};      // at the barrier now open
  alignas(64) std::atomic<std::uint32_t> epoch{0};  // barriers passed
  std::atomic<bool> aborted{false};
  WaitingPoint waiting;
  mutable absl::Mutex mutex;
  absl::Status failure ABSL_GUARDED_BY(mutex);
  // By rank; of even and of odd exchanges, so that a rank that is slow to read the last ones does
  // not see the next: the one after these waits for it.
  std::vector<Offer> offers[2];
  std::vector<AlignedBytes> shared;  // of each slot; rank 0 writes while all others wait
};

absl::Status ThreadCommunicator::Group::Wait() {
  if (aborted.load()) return Failure();
  // Stays as it is until all have arrived, this rank included.
  const std::uint32_t before = epoch.load();
  if (num_arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == options.world_size) {
    num_arrived.store(0, std::memory_order_relaxed);
    epoch.store(before + 1);
    waiting.Notify();
    return absl::OkStatus();
  }
  const auto passed = [this, before] { return epoch.load() != before || aborted.load(); };
  if (!waiting.Wait(passed, options.spin, options.timeout)) {
    Abort(absl::DeadlineExceededError(
        absl::StrFormat("tensor-parallel ranks did not meet: %d of %d came within %s",
                        num_arrived.load(std::memory_order_relaxed), options.world_size,
                        absl::FormatDuration(options.timeout))));
  }
  return epoch.load() != before ? absl::OkStatus() : Failure();
}

void ThreadCommunicator::Group::Abort(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex);
    if (!failure.ok()) return;
    failure =
        status.ok() ? absl::InternalError("tensor-parallel group ended without a reason") : status;
  }
  aborted.store(true);
  waiting.Notify();
}

std::vector<std::shared_ptr<ThreadCommunicator>> ThreadCommunicator::MakeGroup(
    const ThreadGroupOptions& options) {
  BATON_CHECK(options.world_size > 0, "a group without ranks");
  const auto group = std::make_shared<Group>(options);
  std::vector<std::shared_ptr<ThreadCommunicator>> ranks;
  for (int rank = 0; rank < options.world_size; ++rank) {
    ranks.emplace_back(new ThreadCommunicator(group, rank));
  }
  return ranks;
}

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<Group> group, int rank)
    : group_(std::move(group)), rank_(rank) {}

ThreadCommunicator::~ThreadCommunicator() = default;

int ThreadCommunicator::world_size() const { return group_->options.world_size; }

void ThreadCommunicator::Abort(const absl::Status& status) { group_->Abort(status); }

absl::Status ThreadCommunicator::status() const { return group_->Failure(); }

absl::Status ThreadCommunicator::Barrier() { return group_->Wait(); }

absl::StatusOr<std::span<const ThreadCommunicator::Offer>> ThreadCommunicator::Exchange(
    const Offer& offer) {
  std::vector<Offer>& offers = group_->offers[num_exchanges_++ % 2];
  offers[rank_] = offer;
  BATON_RETURN_IF_ERROR(Barrier());
  for (const Offer& other : offers) {
    if (other.size == offer.size) continue;
    Abort(absl::InternalError(
        absl::StrFormat("tensor-parallel ranks disagree on a size: %d on rank %d, %d on another",
                        offer.size, rank_, other.size)));
    return status();
  }
  return std::span<const Offer>(offers);
}

absl::Status ThreadCommunicator::AllReduceSum(const float* send, float* receive,
                                              std::size_t count) {
  BATON_ASSIGN_OR_RETURN(const auto offers, Exchange({send, count}));
  sums_.assign(count, 0.0f);
  for (const Offer& offer : offers) {
    const auto* from = static_cast<const float*>(offer.data);
    for (std::size_t i = 0; i < count; ++i) sums_[i] += from[i];
  }
  BATON_RETURN_IF_ERROR(Barrier());  // nobody reads a `send` any more: it may be `receive`
  std::copy(sums_.begin(), sums_.end(), receive);
  return absl::OkStatus();
}

absl::Status ThreadCommunicator::AllGather(const void* send, std::size_t bytes, void* receive) {
  BATON_ASSIGN_OR_RETURN(const auto offers, Exchange({send, bytes}));
  for (int rank = 0; rank < world_size(); ++rank) {
    std::byte* to = static_cast<std::byte*>(receive) + rank * bytes;
    const void* from = offers[rank].data;
    if (from != to && bytes > 0) std::memcpy(to, from, bytes);
  }
  return Barrier();
}

absl::StatusOr<std::byte*> ThreadCommunicator::Shared(int slot, std::size_t bytes) {
  const auto index = static_cast<std::size_t>(slot);
  if (index >= shared_bytes_.size()) shared_bytes_.resize(index + 1, 0);
  if (bytes > shared_bytes_[index]) {
    // Afterwards nobody uses the old memory any more.
    BATON_RETURN_IF_ERROR(Exchange({nullptr, bytes}).status());
    if (rank_ == 0) {
      if (index >= group_->shared.size()) group_->shared.resize(index + 1);
      auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
      if (memory == nullptr) {
        Abort(absl::ResourceExhaustedError(
            absl::StrFormat("no memory for a tensor-parallel exchange: %d bytes", bytes)));
      }
      group_->shared[index].reset(memory);
    }
    BATON_RETURN_IF_ERROR(Barrier());
    shared_bytes_[index] = bytes;
  }
  return group_->shared[index].get();
}

absl::StatusOr<void*> ThreadCommunicator::FromRank0(void* pointer) {
  BATON_ASSIGN_OR_RETURN(const auto offers, Exchange({pointer, 0}));
  return const_cast<void*>(offers[0].data);
}

}  // namespace baton::engine
