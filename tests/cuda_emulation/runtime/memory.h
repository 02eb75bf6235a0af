#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace cuda_emulation {

enum class MemoryKind { kDevice, kPinned, kRegistered };

struct Allocation {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;  // of kDevice
};

// The allocation that `address` lies in.
std::optional<Allocation> FindAllocation(const void* address);

// cudaErrorMemoryAllocation when the current device has no such room. Bytes are 0xFF at first.
cudaError_t Allocate(MemoryKind kind, std::size_t bytes, void** memory);

// Device memory is reachable for the life of this object. Without CUDA_EMULATION_GUARD it always
// is.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace cuda_emulation
