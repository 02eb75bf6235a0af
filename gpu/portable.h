#pragma once
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#if defined(BATON_CUDA_EMULATION)
#include "cuda_emulation/device.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

// The vocabulary that kernels are written in. Every .cu file is compiled twice: by nvcc for the
// device, and by g++ for the host emulation of the tests (tests/cuda_emulation). This is the only
// file of the kernels with an #if or inline PTX; docs/gpu.md has the rules that keep it so.
namespace baton::gpu {

#if defined(BATON_CUDA_EMULATION)
// Where in the source a barrier stands; messages and the mutation test name it.
using Site = cuda_emulation::Site;
#else
struct Site {
  __device__ static constexpr Site Here() { return {}; }
};
#endif

struct LaunchShape {
  dim3 grid;
  dim3 block;  // 1-D, a multiple of 32 threads
  std::size_t dynamic_shared_bytes = 0;
  cudaStream_t stream = nullptr;  // always one of our own
};

// Enqueues `kernel`, converting the arguments to its parameter types. The only way to start one:
// no file uses <<<>>>. Dynamic shared memory above 48 KiB needs AllowSharedMemory first.
template <class... P, class... A>
cudaError_t Launch(void (*kernel)(P...), const LaunchShape& shape, A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
  std::tuple<P...> packed(static_cast<P>(std::forward<A>(arguments))...);
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.dynamic_shared_bytes;
  config.stream = shape.stream;
  return std::apply(
      [&](auto&... parameters) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&parameters))..., nullptr};
#if defined(BATON_CUDA_EMULATION)
        cuda_emulation::Register(kernel, __PRETTY_FUNCTION__);
#endif
        return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
      },
      packed);
}

template <class... P>
cudaError_t AllowSharedMemory(void (*kernel)(P...), std::size_t bytes) {
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::Register(kernel, __PRETTY_FUNCTION__);
#endif
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

// Storage of type T shared by the threads of a block, uninitialised. Two calls with the same T and
// Tag give the same storage.
template <class T, int Tag = 0>
__device__ __forceinline__ T& SharedMemory() {
#if defined(BATON_CUDA_EMULATION)
  static constexpr char key = 0;
  return *static_cast<T*>(cuda_emulation::StaticShared(&key, sizeof(T), alignof(T)));
#else
  __shared__ T storage;
  return storage;
#endif
}

// The launch's dynamic shared memory, aligned to 128 bytes.
template <class T>
__device__ __forceinline__ T* DynamicSharedMemory() {
#if defined(BATON_CUDA_EMULATION)
  return static_cast<T*>(cuda_emulation::DynamicShared());
#else
  extern __shared__ __align__(128) unsigned char baton_dynamic_shared_memory[];
  return reinterpret_cast<T*>(baton_dynamic_shared_memory);
#endif
}

// Starts to copy 16 bytes from global to shared memory; of those only the first `valid` are read,
// the rest become zero. Both addresses are multiples of 16.
__device__ __forceinline__ void CopyAsync16(void* to, const void* from, int valid = 16) {
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::CopyAsync(to, from, 16, valid, &cuda_emulation::CopyBytes);
#else
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(from),
               "r"(valid)
               : "memory");
#endif
}

// The same for 4 or 8 bytes, with addresses that are multiples of as many.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(void* to, const void* from, int valid = kBytes) {
  static_assert(kBytes == 4 || kBytes == 8, "CopyAsync16 copies 16 bytes");
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::CopyAsync(to, from, kBytes, valid, &cuda_emulation::CopyBytes);
#else
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared), "l"(from),
               "n"(kBytes), "r"(valid)
               : "memory");
#endif
}

// Makes a group of this thread's copies since the last commit.
__device__ __forceinline__ void CopyAsyncCommit() {
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::CopyAsyncCommit();
#else
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

// Waits until at most `kLeft` of this thread's groups are under way. Other threads see the bytes
// after a __syncthreads that follows.
template <int kLeft>
__device__ __forceinline__ void CopyAsyncWait([[maybe_unused]] const Site& site = Site::Here()) {
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::CopyAsyncWait(kLeft, site);
#else
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft) : "memory");
#endif
}

// A barrier of the `threads` threads (whole warps) that name it, one of 15 beside __syncthreads:
// `id` in 1..15.
__device__ __forceinline__ void NamedBarrier(int id, int threads,
                                             [[maybe_unused]] const Site& site = Site::Here()) {
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::BlockSync(static_cast<unsigned>(id), static_cast<unsigned>(threads), site);
#else
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
#endif
}

// d = a (16x16, row) * b (16x8, column) + c, 16-bit floats in, float out: "mma.sync.m16n8k16" of
// the PTX ISA with its layout of fragments over the lanes. T: __nv_bfloat16 or __half.
template <class T>
__device__ __forceinline__ void Mma16x8x16(float (&d)[4], const std::uint32_t (&a)[4],
                                           const std::uint32_t (&b)[2], const float (&c)[4],
                                           [[maybe_unused]] const Site& site = Site::Here()) {
  static_assert(std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half>);
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::MmaArguments<float> arguments{d, a, b, c};
  cuda_emulation::WarpCollective(~0u, &arguments, &cuda_emulation::RunMma16<T>, site);
#else
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%11,%12,%13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%11,%12,%13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  }
#endif
}

// d = a (16x32, row) * b (32x8, column) + c, signed bytes in, int out: "mma.sync.m16n8k32". Sums
// are not clamped.
__device__ __forceinline__ void Mma16x8x32Int8(int (&d)[4], const std::uint32_t (&a)[4],
                                               const std::uint32_t (&b)[2], const int (&c)[4],
                                               [[maybe_unused]] const Site& site = Site::Here()) {
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::MmaArguments<int> arguments{d, a, b, c};
  cuda_emulation::WarpCollective(~0u, &arguments, &cuda_emulation::RunMmaInt8, site);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};\n"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
#endif
}

// Loads four 8x8 matrices of 16-bit elements from shared memory; lane i gives the address of row
// i % 8 of matrix i / 8, a multiple of 16 bytes ("ldmatrix" of the PTX ISA).
template <bool kTranspose>
__device__ __forceinline__ void LoadMatrix4(std::uint32_t (&r)[4], const void* row,
                                            [[maybe_unused]] const Site& site = Site::Here()) {
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::LoadMatrixArguments arguments{r, row, 4, kTranspose};
  cuda_emulation::WarpCollective(~0u, &arguments, &cuda_emulation::RunLoadMatrix, site, true);
#else
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

// Two matrices: the addresses of lanes 0..15 count, but all lanes call it.
template <bool kTranspose>
__device__ __forceinline__ void LoadMatrix2(std::uint32_t (&r)[2], const void* row,
                                            [[maybe_unused]] const Site& site = Site::Here()) {
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::LoadMatrixArguments arguments{r, row, 2, kTranspose};
  cuda_emulation::WarpCollective(~0u, &arguments, &cuda_emulation::RunLoadMatrix, site, true);
#else
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  }
#endif
}

// 2^x to about 2 units in the last place, for softmax in base 2; 0 for -infinity. Denormal results
// may be 0.
__device__ __forceinline__ float Exp2(float x) {
#if defined(BATON_CUDA_EMULATION)
  return std::exp2(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
#endif
}

// Any function of three words bit by bit: bit i of kTable is its value for a = i & 4, b = i & 2,
// c = i & 1. So (a & b) | c has kTable = (0xf0 & 0xcc) | 0xaa.
template <int kTable>
__device__ __forceinline__ std::uint32_t Lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#if defined(BATON_CUDA_EMULATION)
  std::uint32_t result = 0;
  for (int i = 0; i < 8; ++i) {
    if ((kTable >> i & 1) == 0) continue;
    result |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
  }
  return result;
#else
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, %4;\n" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return result;
#endif
}

// A broken promise inside a kernel: traps on the device, names the place in the emulation.
__device__ __forceinline__ void DeviceAssert(bool holds, [[maybe_unused]] const char* what) {
  if (holds) return;
#if defined(BATON_CUDA_EMULATION)
  cuda_emulation::DeviceFail(what);
#else
  __trap();
#endif
}

}  // namespace baton::gpu
