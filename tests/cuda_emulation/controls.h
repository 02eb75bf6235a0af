#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What tests tell and ask the emulation. Everything here is thread-safe. The same can be said by
// environment variables, which README.md lists, to processes that a test starts.
namespace cuda_emulation {

// In which order the ready threads of a block go on. Each is a legal schedule of a device.
enum class Order { kForward, kReverse, kRandom };
// When the bytes of a cp.async arrive: at its wait, at once, or by chance. All are legal.
enum class AsyncCopies { kLate, kEarly, kRandom };

struct Schedule {
  Order order = Order::kForward;
  std::uint64_t seed = 1;  // of kRandom, both of order and copies
  AsyncCopies copies = AsyncCopies::kLate;
};
// For grids that start from now on.
void SetSchedule(const Schedule& schedule);
Schedule CurrentSchedule();

// Turns one barrier or cp.async wait off: "path/file.cu:12", where the path may lack its beginning.
// Empty: none. A test that still passes proves nothing about that barrier.
void SkipBarrier(const std::string& site);
// The barriers and waits that kernels have come to so far, "path/file.cu:12", sorted.
std::vector<std::string> BarriersMet();

// Makes a call of the runtime fail: the call number `after` + 1 from now, and the next `times` - 1.
// `call` is the function's name, or "kernel": the execution of a kernel, which fails later and
// sticks, as on a device. A sticky error answers every later call on that device.
struct Fault {
  std::string call;
  cudaError_t error = cudaErrorUnknown;
  int after = 0;
  int times = 1;
  bool sticky = false;
  int device = -1;  // only where this device is current; -1: any
};
void InjectFault(const Fault& fault);
void ClearFaults();

// Forgets sticky errors, as only a new process does on a device. Nothing may be running.
void ResetDevices();
// Why the last kernel or call of any thread failed, in words; empty: none has since ResetDevices.
std::string LastMessage();

// What exists now: a test compares before and after.
struct LiveObjects {
  std::size_t device_allocations = 0;
  std::size_t host_allocations = 0;  // pinned, and registered ranges
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t graphs = 0;  // and executable graphs
  bool operator==(const LiveObjects&) const = default;
};
LiveObjects CountLiveObjects();
std::size_t LiveDeviceBytes(int device);

// Since the process began.
struct Counters {
  std::uint64_t grids = 0;
  std::uint64_t blocks = 0;
  std::uint64_t switches = 0;     // from one thread of a block to another
  std::uint64_t collectives = 0;  // warp operations, counted per lane
  std::uint64_t copies = 0;       // between host and device, or within a device
  std::uint64_t host_waits = 0;   // calls in which the host waits for the device
  std::uint64_t allocations = 0;
  std::uint64_t graph_launches = 0;
};
Counters CountersSoFar();

}  // namespace cuda_emulation
