#pragma once
#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_emulation/site.h"

// CUDA's builtin variables, set whenever a thread of a kernel goes on. Not macros: CUDA's own
// structs have members of these names.
inline thread_local constinit uint3 threadIdx{0, 0, 0};
inline thread_local constinit dim3 blockIdx{0, 0, 0};
inline thread_local constinit dim3 blockDim{1, 1, 1};
inline thread_local constinit dim3 gridDim{1, 1, 1};
inline constexpr int warpSize = 32;

// What kernels, through the headers in device/ and gpu/portable.h, call of the executor. To be
// called by a thread of a running kernel only.
namespace cuda_emulation {

// Runs once, when the last lane of `mask` arrives; arguments[lane] is what that lane handed in.
using CollectiveFunction = void (*)(void* const* arguments, std::uint32_t mask);

// Every warp operation: waits until all lanes of `mask` have called it with the same function.
// `reads_memory`: the function's accesses are the kernel's own, for the sanitizers to see.
void WarpCollective(std::uint32_t mask, void* arguments, CollectiveFunction function,
                    const Site& site, bool reads_memory = false);
// __syncwarp: a collective that also orders memory.
void WarpSync(std::uint32_t mask, const Site& site);
// Barrier `id` of the block, 0..15; waits for `threads` of them, 0: all that have not exited.
void BlockSync(unsigned id, unsigned threads, const Site& site);
// __threadfence: what this thread did before is seen by whoever fences after it.
void Fence();
unsigned LaneId();

// Storage of the running block, alike for all its threads; the bytes are 0xFF at first. `key`
// names a variable.
void* StaticShared(const void* key, std::size_t bytes, std::size_t alignment);
void* DynamicShared();

// cp.async. `copy` is compiled with the kernel, so that the sanitizers see its accesses.
using CopyFunction = void (*)(void* to, const void* from, int bytes, int valid);
void CopyAsync(void* to, const void* from, int bytes, int valid, CopyFunction copy);
void CopyAsyncCommit();
void CopyAsyncWait(int groups_left, const Site& site);

// Ends the grid with an error.
[[noreturn]] void DeviceFail(const std::string& what);

// How cudaLaunchKernelExC starts a kernel that it knows by address only.
struct Kernel {
  const char* name;
  std::size_t parameter_bytes;
  std::shared_ptr<void> (*copy_arguments)(void** arguments);
  void (*invoke)(const void* kernel, void* arguments);
};
void RegisterKernel(const void* address, const Kernel& kernel);

// Called before every launch of `kernel`; `name` is for messages.
template <class... P>
void Register(void (*kernel)(P...), const char* name) {
  using Arguments = std::tuple<std::decay_t<P>...>;
  static constexpr auto copy = [](void** from) -> std::shared_ptr<void> {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::make_shared<Arguments>(*static_cast<std::decay_t<P>*>(from[i])...);
    }
    (std::index_sequence_for<P...>{});
  };
  static constexpr auto invoke = [](const void* address, void* arguments) {
    std::apply(reinterpret_cast<void (*)(P...)>(const_cast<void*>(address)),
               *static_cast<Arguments*>(arguments));
  };
  RegisterKernel(reinterpret_cast<const void*>(kernel),
                 {name, (std::size_t{0} + ... + sizeof(std::decay_t<P>)), copy, invoke});
}

}  // namespace cuda_emulation
