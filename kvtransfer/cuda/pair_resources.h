#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gpu/device_buffer.h"
#include "gpu/stream.h"

namespace baton::kvtransfer::cuda {

// What a pair needs besides its communicator.
struct PairResources {
  static constexpr std::size_t kSlots = 4;  // messages under way

  static absl::StatusOr<std::unique_ptr<PairResources>> Create(int device,
                                                               std::size_t message_bytes);

  int device = 0;
  gpu::Stream stream;
  gpu::DeviceBuffer staging;        // [message_bytes]; used in the stream's order
  gpu::DeviceBuffer device_pieces;  // [max_pieces], the list that a launch reads; likewise
  gpu::PinnedBuffer pieces;         // [kSlots][max_pieces]
  std::size_t max_pieces = 0;
  std::array<gpu::Event, kSlots> done;
};

// Keeps the resources of closed pairs for the next ones. Freeing memory waits for the whole device:
// for the model's step, and for ever if the kernel of another pair hangs there. Thread-safe.
class PairResourceCache {
 public:
  absl::StatusOr<std::unique_ptr<PairResources>> Take(int device, std::size_t message_bytes);
  // Requires that their stream is idle.
  void GiveBack(std::unique_ptr<PairResources> resources);

 private:
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<PairResources>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::kvtransfer::cuda
