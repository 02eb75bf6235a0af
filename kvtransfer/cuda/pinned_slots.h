#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gpu/device_buffer.h"
#include "gpu/stream.h"
#include "kvtransfer/cuda/kernels/copy_pieces.h"

namespace baton::kvtransfer::cuda {

// Pinned memory for one frame, with what it takes to copy between it and devices: per rank a list
// of pieces that kernels read in place, a stream and an event. One thread at a time.
class PinnedSlot {
 public:
  static absl::StatusOr<std::unique_ptr<PinnedSlot>> Create(std::size_t bytes,
                                                            const std::vector<int>& devices);
  std::byte* data() const { return data_.data(); }
  std::size_t bytes() const { return data_.bytes(); }

  // Forgets what was added and not copied.
  void Clear();
  // Adds a piece to copy on the device of `rank`; addresses and sizes are multiples of 16 bytes.
  absl::Status Add(int rank, const void* from, void* to, std::size_t bytes);
  // Starts the copies of all pieces added, and waits until they are done.
  absl::Status Copy(absl::Time deadline);

 private:
  struct Rank {
    int device = 0;
    gpu::Stream stream;
    gpu::Event done;
    gpu::PinnedBuffer pieces;
    int num_pieces = 0;
    std::size_t largest = 0;
  };
  gpu::PinnedBuffer data_;
  std::vector<Rank> ranks_;
};

// Lends slots; they are made when first needed. Thread-safe.
class PinnedSlots : public std::enable_shared_from_this<PinnedSlots> {
 public:
  PinnedSlots(int max_slots, std::size_t slot_bytes, std::vector<int> devices)
      : max_slots_(max_slots), slot_bytes_(slot_bytes), devices_(std::move(devices)) {}
  // Gives itself back when the last owner lets go, on any thread.
  //   kResourceExhausted  all are lent out until the deadline
  absl::StatusOr<std::shared_ptr<PinnedSlot>> Take(absl::Time deadline);
  std::size_t slot_bytes() const { return slot_bytes_; }

 private:
  void GiveBack(std::unique_ptr<PinnedSlot> slot);
  const int max_slots_;
  const std::size_t slot_bytes_;
  const std::vector<int> devices_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<PinnedSlot>> free_ ABSL_GUARDED_BY(mutex_);
  int num_made_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::kvtransfer::cuda
