#pragma once
#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"

namespace baton::engine::cpu {

// Zeroed memory for weights, handed out from regions that the kernel may back with 2 MiB pages:
// a token's weights are read as streams of many megabytes, which 4 KiB pages slow down twice, by
// TLB misses and because hardware prefetchers stop at page ends. Memory is given back when the last
// holder of its region lets go. Not thread-safe.
class WeightMemory {
 public:
  // `size` bytes, 64-byte aligned, valid as long as any copy of the pointer lives.
  //   kResourceExhausted  the system refuses
  absl::StatusOr<std::shared_ptr<std::byte>> Take(std::size_t size);

 private:
  std::shared_ptr<std::byte> region_;
  std::size_t region_size_ = 0;
  std::size_t used_ = 0;
};

}  // namespace baton::engine::cpu
