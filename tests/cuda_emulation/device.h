// Device-side CUDA vocabulary for the host build. NVIDIA's own headers give the types (float4, half, bf16, fp8);
// this file gives what exists only under nvcc.
#pragma once
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include "cuda_emulation/exec.h"

#define __launch_bounds__(...)
#undef __shared__        // raw __shared__ is not used by our kernels: SharedMemory<T>() is
#undef __grid_constant__
#define __grid_constant__
#if defined(__SANITIZE_THREAD__)
#define EMU_NO_TSAN __attribute__((no_sanitize("thread"), noinline))
#else
#define EMU_NO_TSAN
#endif

namespace cuda_emulation {
template <class T> struct ShflArg { T in, out; int src; };
template <class T> EMU_NO_TSAN void ShflRun(void* const* a, std::uint32_t mask) {
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) {
      auto* me = static_cast<ShflArg<T>*>(a[i]);
      const int s = me->src;
      // reading a lane that does not take part is undefined on the device: hand back a pattern that shows
      if (mask >> s & 1) me->out = static_cast<ShflArg<T>*>(a[s])->in;
      else std::memset(static_cast<void*>(&me->out), 0xFF, sizeof(T));
    }
}
template <class T> T Shfl(std::uint32_t mask, T v, int src, const Site& loc) {
  ShflArg<T> a{v, v, src};
  WarpCollective(mask, &a, &ShflRun<T>, loc);
  return a.out;
}
struct VoteArg { bool pred; std::uint32_t ballot; };
EMU_NO_TSAN inline void VoteRun(void* const* a, std::uint32_t mask) {
  std::uint32_t b = 0;
  for (int i = 0; i < 32; ++i) if ((mask >> i & 1) && static_cast<VoteArg*>(a[i])->pred) b |= 1u << i;
  for (int i = 0; i < 32; ++i) if (mask >> i & 1) static_cast<VoteArg*>(a[i])->ballot = b;
}
inline std::uint32_t Ballot(std::uint32_t mask, bool p, const Site& loc) {
  VoteArg a{p, 0}; WarpCollective(mask, &a, &VoteRun, loc); return a.ballot;
}
template <class T> T AtomicRmw(T* p, auto f) {
  std::atomic_ref<T> r(*p); T old = r.load(std::memory_order_relaxed);
  while (!r.compare_exchange_weak(old, f(old), std::memory_order_relaxed)) {}
  return old;
}
}  // namespace cuda_emulation

// --- synchronisation -------------------------------------------------------------------------
inline void __syncthreads(const cuda_emulation::Site& l = cuda_emulation::Site::Here()) { cuda_emulation::BlockSync(0, 0, l); }
inline void __syncwarp(std::uint32_t mask = 0xffffffffu, const cuda_emulation::Site& l = cuda_emulation::Site::Here()) { cuda_emulation::WarpSync(mask, l); }
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
[[noreturn]] inline void __trap() { cuda_emulation::DeviceFail("__trap()"); }
inline void __nanosleep(unsigned) {}

// --- warp shuffles and votes --------------------------------------------------------------------
#define EMU_LOC const cuda_emulation::Site& l = cuda_emulation::Site::Here()
template <class T> T __shfl_sync(unsigned m, T v, int src, int w = 32, EMU_LOC) { int id = cuda_emulation::LaneId(); return cuda_emulation::Shfl(m, v, (id & ~(w - 1)) + (src & (w - 1)), l); }
template <class T> T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32, EMU_LOC) { int id = cuda_emulation::LaneId(); int s = id - static_cast<int>(d); return cuda_emulation::Shfl(m, v, s < (id & ~(w - 1)) ? id : s, l); }
template <class T> T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32, EMU_LOC) { int id = cuda_emulation::LaneId(); int s = id + static_cast<int>(d); return cuda_emulation::Shfl(m, v, s > (id | (w - 1)) ? id : s, l); }
template <class T> T __shfl_xor_sync(unsigned m, T v, int x, int w = 32, EMU_LOC) { int id = cuda_emulation::LaneId(); int s = id ^ x; return cuda_emulation::Shfl(m, v, s > (id | (w - 1)) ? id : s, l); }
inline unsigned __ballot_sync(unsigned m, int p, EMU_LOC) { return cuda_emulation::Ballot(m, p, l); }
inline int __any_sync(unsigned m, int p, EMU_LOC) { return cuda_emulation::Ballot(m, p, l) != 0; }
inline int __all_sync(unsigned m, int p, EMU_LOC) { return cuda_emulation::Ballot(m, p, l) == m; }

// --- memory ------------------------------------------------------------------------------------
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stcs(T* p, T v) { *p = v; }
template <class T, class U> T atomicAdd(T* p, U v) { return cuda_emulation::AtomicRmw(p, [&](T o) { return static_cast<T>(o + static_cast<T>(v)); }); }
template <class T> T atomicMax(T* p, T v) { return cuda_emulation::AtomicRmw(p, [&](T o) { return std::max(o, v); }); }
template <class T> T atomicMin(T* p, T v) { return cuda_emulation::AtomicRmw(p, [&](T o) { return std::min(o, v); }); }
template <class T> T atomicExch(T* p, T v) { return std::atomic_ref<T>(*p).exchange(v); }
template <class T> T atomicCAS(T* p, T c, T v) { std::atomic_ref<T>(*p).compare_exchange_strong(c, v); return c; }

// --- arithmetic --------------------------------------------------------------------------------
using std::max; using std::min;   // CUDA's global overloads; mixed types as in CUDA are left out on purpose
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __int_as_float(int u) { return std::bit_cast<float>(u); }
inline float __uint_as_float(unsigned u) { return std::bit_cast<float>(u); }
inline unsigned __float_as_uint(float f) { return std::bit_cast<unsigned>(f); }
inline int __float_as_int(float f) { return std::bit_cast<int>(f); }
inline int __float2int_rn(float f) { return static_cast<int>(std::nearbyint(f)); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0; }
inline int __dp4a(int a, int b, int c) { for (int i = 0; i < 4; ++i) c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i); return c; }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  std::uint64_t v = (std::uint64_t{y} << 32) | x; unsigned r = 0;
  for (int i = 0; i < 4; ++i) { unsigned k = s >> 4 * i & 15; unsigned byte = v >> 8 * (k & 7) & 255; if (k & 8) byte = byte & 128 ? 255 : 0; r |= byte << 8 * i; }
  return r;
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return __float2bfloat16_rn(std::fma(__bfloat162float(a), __bfloat162float(b), __bfloat162float(c))); }
inline __half __hfma(__half a, __half b, __half c) { return __float2half_rn(std::fma(__half2float(a), __half2float(b), __half2float(c))); }
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }

// --- nvcuda::wmma, 16x16x16 ------------------------------------------------------------------------
namespace nvcuda::wmma {
struct matrix_a; struct matrix_b; struct accumulator; struct row_major; struct col_major;
enum layout_t { mem_row_major, mem_col_major };
// Element e of lane l is matrix element l*8+e in row order: any mapping is allowed by the API's contract.
template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
  static_assert(M == 16 && N == 16 && K == 16);
  using element_type = T; using storage_element_type = T;
  static constexpr int num_elements = 8;
  T x[num_elements];
};
template <class U, class T, class L> void fill_fragment(fragment<U, 16, 16, 16, T, L>& f, T v) { for (T& e : f.x) e = v; }
template <class U, class T, class L, class S> void load_matrix_sync(fragment<U, 16, 16, 16, T, L>& f, const S* p, unsigned ld) {
  const int lane = cuda_emulation::LaneId();
  for (int e = 0; e < 8; ++e) { int r = (lane * 8 + e) / 16, c = (lane * 8 + e) % 16; f.x[e] = std::is_same_v<L, row_major> ? p[r * ld + c] : p[c * ld + r]; }
}
template <class T> void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& f, const T* p, unsigned ld, layout_t lay) {
  const int lane = cuda_emulation::LaneId();
  for (int e = 0; e < 8; ++e) { int r = (lane * 8 + e) / 16, c = (lane * 8 + e) % 16; f.x[e] = lay == mem_row_major ? p[r * ld + c] : p[c * ld + r]; }
}
template <class T> void store_matrix_sync(T* p, const fragment<accumulator, 16, 16, 16, T>& f, unsigned ld, layout_t lay) {
  const int lane = cuda_emulation::LaneId();
  for (int e = 0; e < 8; ++e) { int r = (lane * 8 + e) / 16, c = (lane * 8 + e) % 16; (lay == mem_row_major ? p[r * ld + c] : p[c * ld + r]) = f.x[e]; }
}
template <class T> struct acc_of { using type = float; };
template <> struct acc_of<signed char> { using type = int; };
template <class D, class A> struct MmaArg { D* d; const A* a; const A* b; const D* c; };
template <class D, class A> EMU_NO_TSAN void MmaRun(void* const* args, std::uint32_t) {
  using F = typename acc_of<A>::type;
  F a[16][16], b[16][16], c[16][16];
  for (int l = 0; l < 32; ++l) {
    auto* m = static_cast<MmaArg<D, A>*>(args[l]);
    for (int e = 0; e < 8; ++e) { int r = l / 2, k = l % 2 * 8 + e; a[r][k] = static_cast<F>(m->a[e]); b[r][k] = static_cast<F>(m->b[e]); c[r][k] = static_cast<F>(m->c[e]); }
  }
  for (int i = 0; i < 16; ++i) for (int k = 0; k < 16; ++k) for (int j = 0; j < 16; ++j) c[i][j] += a[i][k] * b[k][j];
  for (int l = 0; l < 32; ++l) { auto* m = static_cast<MmaArg<D, A>*>(args[l]); for (int e = 0; e < 8; ++e) m->d[e] = static_cast<D>(c[l / 2][l % 2 * 8 + e]); }
}
template <class D, class A, class LA, class LB>
void mma_sync(fragment<accumulator, 16, 16, 16, D>& d, const fragment<matrix_a, 16, 16, 16, A, LA>& a, const fragment<matrix_b, 16, 16, 16, A, LB>& b,
              const fragment<accumulator, 16, 16, 16, D>& c, EMU_LOC) {
  MmaArg<D, A> m{d.x, a.x, b.x, c.x};
  cuda_emulation::WarpCollective(~0u, &m, &MmaRun<D, A>, l);
}
}  // namespace nvcuda::wmma

// --- PTX: mma.sync.m16n8k16 and ldmatrix, fragment layouts as in the PTX ISA ----------------------------
namespace cuda_emulation {
template <class T> EMU_NO_TSAN float Lo(std::uint32_t v) { return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(v))); }
struct PtxMmaArg { float* d; const std::uint32_t* a; const std::uint32_t* b; const float* c; };
template <class T> EMU_NO_TSAN void PtxMmaRun(void* const* args, std::uint32_t) {
  float a[16][16], b[16][8], d[16][8];
  auto f = [](std::uint32_t v, int h) { std::uint16_t u = static_cast<std::uint16_t>(v >> 16 * h); return static_cast<float>(std::bit_cast<T>(u)); };
  for (int l = 0; l < 32; ++l) {
    auto* m = static_cast<PtxMmaArg*>(args[l]);
    const int g = l / 4, q = l % 4 * 2;
    for (int h = 0; h < 2; ++h) {
      a[g][q + h] = f(m->a[0], h); a[g + 8][q + h] = f(m->a[1], h); a[g][q + 8 + h] = f(m->a[2], h); a[g + 8][q + 8 + h] = f(m->a[3], h);
      b[q + h][g] = f(m->b[0], h); b[q + 8 + h][g] = f(m->b[1], h);
      d[g][q + h] = m->c[h]; d[g + 8][q + h] = m->c[2 + h];
    }
  }
  for (int i = 0; i < 16; ++i) for (int k = 0; k < 16; ++k) for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
  for (int l = 0; l < 32; ++l) {
    auto* m = static_cast<PtxMmaArg*>(args[l]);
    const int g = l / 4, q = l % 4 * 2;
    for (int h = 0; h < 2; ++h) { m->d[h] = d[g][q + h]; m->d[2 + h] = d[g + 8][q + h]; }
  }
}
inline void CopyBytes(void* d, const void* s, int n, int valid) {
  for (int i = 0; i < n / 4; ++i) static_cast<std::uint32_t*>(d)[i] = i * 4 < valid ? static_cast<const std::uint32_t*>(s)[i] : 0;
}
struct LdMatrixArg { std::uint32_t* r; const void* row; int n; bool trans; };
// The read of shared memory stays visible to TSan; the exchange of fragments between lanes does not.
__attribute__((noinline)) inline std::uint16_t SharedLoad(const void* row, int c) { return static_cast<const std::uint16_t*>(row)[c]; }
EMU_NO_TSAN inline void LdMatrixRun(void* const* args, std::uint32_t) {
  for (int l = 0; l < 32; ++l) {
    auto* me = static_cast<LdMatrixArg*>(args[l]);
    for (int i = 0; i < me->n; ++i) {
      std::uint16_t v[2];
      for (int h = 0; h < 2; ++h) {
        const int r = me->trans ? l % 4 * 2 + h : l / 4, c = me->trans ? l / 4 : l % 4 * 2 + h;
        v[h] = SharedLoad(static_cast<LdMatrixArg*>(args[i * 8 + r])->row, c);
      }
      me->r[i] = v[0] | std::uint32_t{v[1]} << 16;
    }
  }
}
}  // namespace cuda_emulation
