#include "kvtransfer/cuda/pinned_slots.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status.h"
#include "gpu/status.h"

namespace baton::kvtransfer::cuda {
namespace {

constexpr std::size_t kShortestPiece = 128;  // as in nccl_pair.cc

}  // namespace

absl::StatusOr<std::unique_ptr<PinnedSlot>> PinnedSlot::Create(std::size_t bytes,
                                                               const std::vector<int>& devices) {
  auto slot = std::make_unique<PinnedSlot>();
  BATON_ASSIGN_OR_RETURN(slot->data_, gpu::PinnedBuffer::Create(bytes));
  const std::size_t max_pieces = std::max<std::size_t>(16, bytes / kShortestPiece);
  for (const int device : devices) {
    Rank& rank = slot->ranks_.emplace_back();
    rank.device = device;
    BATON_CUDA_RETURN_IF_ERROR(cudaSetDevice(device));
    BATON_ASSIGN_OR_RETURN(rank.stream, gpu::Stream::Create());
    BATON_ASSIGN_OR_RETURN(rank.done, gpu::Event::Create());
    BATON_ASSIGN_OR_RETURN(rank.pieces, gpu::PinnedBuffer::Create(max_pieces * sizeof(CopyPiece)));
  }
  return slot;
}

void PinnedSlot::Clear() {
  for (Rank& rank : ranks_) {
    rank.num_pieces = 0;
    rank.largest = 0;
  }
}

absl::Status PinnedSlot::Add(int rank_index, const void* from, void* to, std::size_t bytes) {
  Rank& rank = ranks_[rank_index];
  if ((rank.num_pieces + 1) * sizeof(CopyPiece) > rank.pieces.bytes()) {
    return absl::InternalError(
        absl::StrFormat("too many pieces in a KV frame: more than %d", rank.num_pieces));
  }
  rank.pieces.as<CopyPiece>()[rank.num_pieces++] = {.from = from, .to = to, .bytes = bytes};
  rank.largest = std::max(rank.largest, bytes);
  return absl::OkStatus();
}

absl::Status PinnedSlot::Copy(absl::Time deadline) {
  absl::Status status;
  for (Rank& rank : ranks_) {
    if (rank.num_pieces == 0) continue;
    const auto start = [&]() -> absl::Status {
      BATON_CUDA_RETURN_IF_ERROR(cudaSetDevice(rank.device));
      BATON_CUDA_RETURN_IF_ERROR(CopyPieces(rank.pieces.as<CopyPiece>(), rank.num_pieces,
                                            rank.largest, rank.stream.get()));
      return rank.done.Record(rank.stream.get());
    };
    status.Update(start());
  }
  Clear();
  // Waits for every rank, those without pieces too: an event that was never recorded is done.
  for (Rank& rank : ranks_) {
    cudaSetDevice(rank.device);
    status.Update(rank.done.Await(deadline));
  }
  return status;
}

absl::StatusOr<std::shared_ptr<PinnedSlot>> PinnedSlots::Take(absl::Time deadline) {
  std::unique_ptr<PinnedSlot> slot;
  {
    absl::MutexLock lock(&mutex_);
    const auto available = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !free_.empty() || num_made_ < max_slots_;
    };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&available), deadline)) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("all %d pinned frames are lent out", max_slots_));
    }
    if (free_.empty()) {
      ++num_made_;
    } else {
      slot = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (slot == nullptr) {
    auto made = PinnedSlot::Create(slot_bytes_, devices_);
    if (!made.ok()) {
      absl::MutexLock lock(&mutex_);
      --num_made_;
      return made.status();
    }
    slot = *std::move(made);
  }
  return std::shared_ptr<PinnedSlot>(slot.release(), [self = shared_from_this()](PinnedSlot* back) {
    self->GiveBack(std::unique_ptr<PinnedSlot>(back));
  });
}

void PinnedSlots::GiveBack(std::unique_ptr<PinnedSlot> slot) {
  slot->Clear();
  absl::MutexLock lock(&mutex_);
  free_.push_back(std::move(slot));
}

}  // namespace baton::kvtransfer::cuda
