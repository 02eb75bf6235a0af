// Device and pinned memory. Device memory is host memory that a table knows; in guard mode it is
// page-aligned to its end, unreachable while no kernel or copy runs, and its addresses are never
// used again.
#include "cuda_emulation/runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "cuda_emulation/executor/statistics.h"
#include "cuda_emulation/options.h"
#include "cuda_emulation/runtime/capture.h"
#include "cuda_emulation/runtime/devices.h"
#include "cuda_emulation/runtime/graph.h"
#include "cuda_emulation/runtime/stream.h"

namespace cuda_emulation {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kArenaBytes = std::size_t{256} << 30;  // of address space

struct Table {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> allocations;  // by begin
  std::map<int, std::size_t> used;                   // device memory, by device
  char* arena = nullptr;                             // guard mode
  std::size_t arena_used = 0;
  int accesses = 0;  // DeviceAccess objects alive
};

Table& TheTable() {
  static auto* table = [] {
    auto* made = new Table;
    if (TheOptions().guard) {
      void* arena =
          mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (arena != MAP_FAILED) made->arena = static_cast<char*>(arena);
    }
    return made;
  }();
  return *table;
}

bool Guarded(const Allocation& allocation) {
  return TheTable().arena != nullptr && allocation.kind == MemoryKind::kDevice;
}

// The whole pages of a guarded allocation, of which only its own bytes are used.
void Protect(const Allocation& allocation, int protection) {
  const std::uintptr_t first = allocation.begin / kPage * kPage;
  const std::uintptr_t last = (allocation.begin + allocation.bytes + kPage - 1) / kPage * kPage;
  mprotect(reinterpret_cast<void*>(first), last - first, protection);
}

// A page that stays closed follows each allocation, which ends where that begins, as far as
// alignment allows.
void* TakeFromArena(Table& table, std::size_t bytes) {
  const std::size_t pages = (bytes + kPage - 1) / kPage * kPage;
  if (table.arena_used + pages + kPage > kArenaBytes) return nullptr;
  char* begin = table.arena + table.arena_used;
  table.arena_used += pages + kPage;
  mprotect(begin, pages, PROT_READ | PROT_WRITE);
  return begin + pages - (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

cudaError_t OutOfMemory(Table& table, std::size_t bytes) {
  return Refuse(cudaErrorMemoryAllocation,
                "device " + std::to_string(CurrentDevice()) + " has no room for " +
                    std::to_string(bytes) +
                    " bytes: " + std::to_string(table.used[CurrentDevice()]) + " of " +
                    std::to_string(TheOptions().memory_bytes) + " are in use");
}

cudaError_t FreeMemory(void* memory, bool device_memory, const char* call) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  const auto at = table.allocations.find(reinterpret_cast<std::uintptr_t>(memory));
  const MemoryKind kind = device_memory ? MemoryKind::kDevice : MemoryKind::kPinned;
  if (at == table.allocations.end() || at->second.kind != kind) {
    return Refuse(cudaErrorInvalidValue,
                  std::string(call) + ": the address begins no live allocation of that kind");
  }
  const Allocation allocation = at->second;
  if (device_memory) table.used[allocation.device] -= allocation.bytes;
  table.allocations.erase(at);
  if (Guarded(allocation)) {
    Protect(allocation, PROT_NONE);
    const std::uintptr_t first = allocation.begin / kPage * kPage;
    madvise(reinterpret_cast<void*>(first), allocation.begin + allocation.bytes - first,
            MADV_DONTNEED);
  } else {
    std::free(memory);
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t Allocate(MemoryKind kind, std::size_t bytes, void** memory) {
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  Table& table = TheTable();
  Allocation allocation{0, bytes, kind, CurrentDevice()};
  {
    const std::lock_guard lock(table.mutex);
    if (kind == MemoryKind::kDevice) {
      std::size_t& used = table.used[allocation.device];
      if (bytes > TheOptions().memory_bytes - used) return OutOfMemory(table, bytes);
      used += bytes;
    }
    if (Guarded(allocation)) {
      *memory = TakeFromArena(table, bytes);
    } else if (posix_memalign(memory, kAlignment, bytes) != 0) {
      *memory = nullptr;
    }
    if (*memory == nullptr) {
      if (kind == MemoryKind::kDevice) table.used[allocation.device] -= bytes;
      return OutOfMemory(table, bytes);
    }
  }
  ++TheStatistics().allocations;
  std::memset(*memory, 0xFF, bytes);  // NaN as any float, -1 as int
  allocation.begin = reinterpret_cast<std::uintptr_t>(*memory);
  const std::lock_guard lock(table.mutex);
  if (Guarded(allocation) && table.accesses == 0) Protect(allocation, PROT_NONE);
  table.allocations[allocation.begin] = allocation;
  return cudaSuccess;
}

std::optional<Allocation> FindAllocation(const void* address) {
  Table& table = TheTable();
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(table.mutex);
  auto at = table.allocations.upper_bound(wanted);
  if (at == table.allocations.begin()) return std::nullopt;
  --at;
  if (wanted >= at->first + at->second.bytes) return std::nullopt;
  return at->second;
}

int DeviceOf(const void* address, std::size_t bytes) {
  const auto found = FindAllocation(address);
  const bool inside =
      found.has_value() && found->kind == MemoryKind::kDevice &&
      reinterpret_cast<std::uintptr_t>(address) + bytes <= found->begin + found->bytes;
  return inside ? found->device : -1;
}
bool IsDeviceRange(const void* address, std::size_t bytes) { return DeviceOf(address, bytes) >= 0; }
bool IsDevicePointer(const void* address) { return IsDeviceRange(address, 1); }

bool AccountDeviceMemory(int device, std::ptrdiff_t bytes) {
  const std::lock_guard lock(TheTable().mutex);
  std::size_t& used = TheTable().used[device];
  if (bytes > 0 && static_cast<std::size_t>(bytes) > TheOptions().memory_bytes - used) return false;
  used += static_cast<std::size_t>(bytes);
  return true;
}

DeviceAccess::DeviceAccess() {
  Table& table = TheTable();
  if (table.arena == nullptr) return;
  const std::lock_guard lock(table.mutex);
  if (table.accesses++ > 0) return;
  for (const auto& [begin, allocation] : table.allocations) {
    if (Guarded(allocation)) Protect(allocation, PROT_READ | PROT_WRITE);
  }
}

DeviceAccess::~DeviceAccess() {
  Table& table = TheTable();
  if (table.arena == nullptr) return;
  const std::lock_guard lock(table.mutex);
  if (--table.accesses > 0) return;
  for (const auto& [begin, allocation] : table.allocations) {
    if (Guarded(allocation)) Protect(allocation, PROT_NONE);
  }
}

std::size_t LiveDeviceBytes(int device) {
  const std::lock_guard lock(TheTable().mutex);
  return TheTable().used[device];
}

void CountAllocations(LiveObjects& objects) {
  const std::lock_guard lock(TheTable().mutex);
  for (const auto& [begin, allocation] : TheTable().allocations) {
    ++(allocation.kind == MemoryKind::kDevice ? objects.device_allocations
                                              : objects.host_allocations);
  }
}

}  // namespace cuda_emulation

using cuda_emulation::MemoryKind;
using cuda_emulation::Refuse;

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  CUDA_EMULATION_ENTER(cudaMalloc);
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaMalloc);
  return cuda_emulation::Allocate(MemoryKind::kDevice, bytes, memory);
}

cudaError_t cudaFree(void* memory) {
  CUDA_EMULATION_ENTER(cudaFree);
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaFree);
  if (memory == nullptr) return cudaSuccess;
  cuda_emulation::AwaitDevice(cuda_emulation::CurrentDevice());
  return cuda_emulation::FreeMemory(memory, true, "cudaFree");
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  CUDA_EMULATION_ENTER(cudaHostAlloc);
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaHostAlloc);
  return cuda_emulation::Allocate(MemoryKind::kPinned, bytes, memory);
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  CUDA_EMULATION_ENTER(cudaMallocHost);
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaMallocHost);
  return cuda_emulation::Allocate(MemoryKind::kPinned, bytes, memory);
}

cudaError_t cudaFreeHost(void* memory) {
  CUDA_EMULATION_ENTER(cudaFreeHost);
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaFreeHost);
  if (memory == nullptr) return cudaSuccess;
  cuda_emulation::AwaitDevice(cuda_emulation::CurrentDevice());
  return cuda_emulation::FreeMemory(memory, false, "cudaFreeHost");
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  CUDA_EMULATION_ENTER(cudaHostRegister);
  CUDA_EMULATION_UNSAFE_IN_CAPTURE(cudaHostRegister);
  if (memory == nullptr || bytes == 0) return Refuse(cudaErrorInvalidValue, "cudaHostRegister");
  const char* last = static_cast<const char*>(memory) + bytes - 1;
  if (cuda_emulation::FindAllocation(memory) || cuda_emulation::FindAllocation(last)) {
    return Refuse(cudaErrorHostMemoryAlreadyRegistered,
                  "cudaHostRegister: part of the range is registered or CUDA's own");
  }
  auto& table = cuda_emulation::TheTable();
  const std::lock_guard lock(table.mutex);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  table.allocations[begin] = {begin, bytes, MemoryKind::kRegistered, 0};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  CUDA_EMULATION_ENTER(cudaHostUnregister);
  auto& table = cuda_emulation::TheTable();
  const std::lock_guard lock(table.mutex);
  const auto at = table.allocations.find(reinterpret_cast<std::uintptr_t>(memory));
  if (at == table.allocations.end() || at->second.kind != MemoryKind::kRegistered) {
    return Refuse(cudaErrorHostMemoryNotRegistered, "cudaHostUnregister");
  }
  table.allocations.erase(at);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  CUDA_EMULATION_ENTER(cudaMemGetInfo);
  auto& table = cuda_emulation::TheTable();
  const std::lock_guard lock(table.mutex);
  *total = cuda_emulation::TheOptions().memory_bytes;
  *free = *total - table.used[cuda_emulation::CurrentDevice()];
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  CUDA_EMULATION_ENTER(cudaPointerGetAttributes);
  *attributes = {};
  const auto found = cuda_emulation::FindAllocation(address);
  if (!found.has_value()) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;
    return cudaSuccess;
  }
  const bool device = found->kind == MemoryKind::kDevice;
  attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = found->device;
  attributes->devicePointer = const_cast<void*>(address);
  attributes->hostPointer = device ? nullptr : const_cast<void*>(address);
  return cudaSuccess;
}

}  // extern "C"
