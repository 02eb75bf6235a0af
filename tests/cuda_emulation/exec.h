// Executes CUDA kernels on the host: the threads of a block are fibers, blocks are shared out to OS threads.
#pragma once
#include <cuda_runtime_api.h>
#include <vector_types.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

inline thread_local constinit uint3 threadIdx{0, 0, 0};
inline thread_local constinit dim3 blockIdx{0, 0, 0};
inline thread_local constinit dim3 blockDim{1, 1, 1};
inline thread_local constinit dim3 gridDim{1, 1, 1};
inline constexpr int warpSize = 32;

namespace cuda_emulation {
// Where in the source a barrier stands. (std::source_location is unknown to clang 14.)
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// --- called by device.h from inside a kernel -------------------------------------------------
using CollectiveFn = void (*)(void* const* args, std::uint32_t mask);  // args[lane], run once by the last lane to arrive
void WarpCollective(std::uint32_t mask, void* args, CollectiveFn fn, const Site& loc, bool touches_memory = false);
void WarpSync(std::uint32_t mask, const Site& loc);
void BlockSync(unsigned barrier, unsigned threads /*0 = all*/, const Site& loc);
void* DynamicShared();
std::size_t DynamicSharedSize();
void* StaticShared(const void* key, std::size_t size, std::size_t align);
void GridSync(const Site& loc);
void Fence();  // __threadfence: orders this thread's accesses for whoever fences after it
using CopyFn = void (*)(void* dst, const void* src, int bytes, int src_bytes);   // lives in the kernel's (instrumented) file
void CopyAsync(void* dst, const void* src, int bytes, int src_bytes, CopyFn copy);
void CopyAsyncCommit();
void CopyAsyncWait(int groups_left, const Site& loc);
[[noreturn]] void DeviceFail(std::string message);
unsigned LaneId();

// --- launching ---------------------------------------------------------------------------------
struct LaunchSpec {
  dim3 grid, block;
  std::size_t dynamic_smem = 0;
  bool cooperative = false;
  std::function<void()> body;   // calls the kernel with its arguments
  const char* name = "kernel";
};
struct LaunchResult { cudaError_t error = cudaSuccess; std::string message; std::size_t static_smem = 0; };
LaunchResult RunGrid(const LaunchSpec& spec);

enum class Order { kForward, kReverse, kRandom };
enum class Async { kLate, kEarly, kRandom };
struct Options { int workers = 2; Order order = Order::kForward; std::uint64_t seed = 1; Async async = Async::kLate; std::size_t stack_bytes = 64 << 10; bool poison_shared = true; };
Options& GlobalOptions();   // CUDA_EMULATION_WORKERS, CUDA_EMULATION_ORDER=forward|reverse|random[:seed]
struct Counters { std::uint64_t switches = 0, blocks = 0, collectives = 0; };
Counters GlobalCounters();

// Typed bridge used by the fake cudaLaunchKernelExC.
struct KernelInfo {
  std::shared_ptr<void> (*copy_args)(void** args);
  void (*invoke)(const void* fn, void* packed);
  const char* name;
};
void RegisterKernel(const void* fn, const KernelInfo& info);
const KernelInfo* FindKernel(const void* fn);
template <class... P>
const void* Register(void (*kernel)(P...), const char* name) {
  static constexpr auto copy = [](void** a) -> std::shared_ptr<void> {
    return [&]<std::size_t... I>(std::index_sequence<I...>) -> std::shared_ptr<void> {
      return std::make_shared<std::tuple<std::decay_t<P>...>>(*static_cast<std::decay_t<P>*>(a[I])...);
    }(std::index_sequence_for<P...>{});
  };
  static constexpr auto invoke = [](const void* fn, void* packed) {
    std::apply(reinterpret_cast<void (*)(P...)>(const_cast<void*>(fn)), *static_cast<std::tuple<std::decay_t<P>...>*>(packed));
  };
  RegisterKernel(reinterpret_cast<const void*>(kernel), KernelInfo{copy, invoke, name});
  return reinterpret_cast<const void*>(kernel);
}
}  // namespace cuda_emulation
