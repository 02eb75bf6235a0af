#pragma once
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/pool_access.h"

namespace baton::kvtransfer::cuda {

struct DevicePoolOptions {
  std::size_t frame_bytes = 1 << 20;  // the most that is read at once; a slot has room for it
  int slots_per_reader = 8;           // frames of one link that may wait for the wire
  int writer_slots = 4;               // frames that links may write at the same time
  absl::Duration timeout = absl::Seconds(10);  // of one copy on the device
};

// Pools in device memory, for transports whose bytes pass through host memory. Blocks are gathered
// into pinned memory, and scattered from it, by one launch a frame on streams of their own: the
// kernel reads and writes the pinned memory itself, so that nothing is copied twice and the model
// goes on computing. `memory` must outlive what is made from it. Thread-safe.
std::shared_ptr<PoolAccess> MakeDevicePool(const KvMemory& memory,
                                           const DevicePoolOptions& options);

}  // namespace baton::kvtransfer::cuda
