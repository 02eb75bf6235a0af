// See vocabulary.h. Bound by nothing: one warp each.
#include "tests/unit/cuda_emulation/vocabulary.h"

#include "gpu/portable.h"
#include "gpu/vector_access.h"

namespace baton::vocabulary {
namespace {

using std::uint32_t;

constexpr unsigned kAll = 0xffffffffu;

template <class T>
__device__ uint32_t Pack(T low, T high) {
  const T pair[2] = {low, high};
  uint32_t packed;
  memcpy(&packed, pair, sizeof packed);
  return packed;
}
__device__ uint32_t PackBytes(const std::int8_t* from, int step) {
  uint32_t packed = 0;
  for (int i = 0; i < 4; ++i) {
    packed |= static_cast<uint32_t>(static_cast<std::uint8_t>(from[i * step])) << 8 * i;
  }
  return packed;
}

template <class T>
__global__ void MultiplyTileKernel(const T* a, const T* b, float* out) {
  const int group = threadIdx.x / 4, pair = threadIdx.x % 4 * 2;
  uint32_t fragment_a[4], fragment_b[2];
  for (int i = 0; i < 4; ++i) {
    const T* at = a + (group + i % 2 * 8) * 16 + pair + i / 2 * 8;
    fragment_a[i] = Pack(at[0], at[1]);
  }
  for (int i = 0; i < 2; ++i) {
    const T* at = b + (pair + i * 8) * 8 + group;
    fragment_b[i] = Pack(at[0], at[8]);
  }
  float d[4], c[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  gpu::Mma16x8x16<T>(d, fragment_a, fragment_b, c);
  for (int i = 0; i < 4; ++i) out[(group + i / 2 * 8) * 8 + pair + i % 2] = d[i];
}

__global__ void MultiplyBytesKernel(const std::int8_t* a, const std::int8_t* b, int* out) {
  const int group = threadIdx.x / 4, quad = threadIdx.x % 4 * 4, pair = threadIdx.x % 4 * 2;
  uint32_t fragment_a[4], fragment_b[2];
  for (int i = 0; i < 4; ++i) {
    fragment_a[i] = PackBytes(a + (group + i % 2 * 8) * 32 + quad + i / 2 * 16, 1);
  }
  for (int i = 0; i < 2; ++i) fragment_b[i] = PackBytes(b + (quad + i * 16) * 8 + group, 8);
  int d[4], c[4] = {1, 2, 3, 4};
  gpu::Mma16x8x32Int8(d, fragment_a, fragment_b, c);
  for (int i = 0; i < 4; ++i) out[(group + i / 2 * 8) * 8 + pair + i % 2] = d[i];
}

struct alignas(16) Rows {
  std::uint16_t v[32][8];
};

template <int kMatrices, bool kTranspose>
__global__ void LoadMatricesKernel(const std::uint16_t* in, uint32_t* out) {
  Rows& rows = gpu::SharedMemory<Rows>();
  for (int i = 0; i < 8; ++i) rows.v[threadIdx.x][i] = in[threadIdx.x * 8 + i];
  __syncwarp();
  uint32_t registers[kMatrices];
  if constexpr (kMatrices == 4) {
    gpu::LoadMatrix4<kTranspose>(registers, rows.v[threadIdx.x]);
  } else {
    gpu::LoadMatrix2<kTranspose>(registers, rows.v[threadIdx.x]);
  }
  for (int i = 0; i < kMatrices; ++i) out[threadIdx.x * kMatrices + i] = registers[i];
}

struct alignas(16) Parts {
  unsigned char v[32][16];
};

template <int kBytes>
__global__ void CopyPartsKernel(const unsigned char* in, int valid, unsigned char* out) {
  Parts& parts = gpu::SharedMemory<Parts>();
  unsigned char* to = parts.v[threadIdx.x];
  if constexpr (kBytes == 16) {
    gpu::CopyAsync16(to, in + threadIdx.x * kBytes, valid);
  } else {
    gpu::CopyAsync<kBytes>(to, in + threadIdx.x * kBytes, valid);
  }
  gpu::CopyAsyncCommit();
  gpu::CopyAsyncWait<0>();
  __syncwarp();
  for (int i = 0; i < kBytes; ++i) out[threadIdx.x * kBytes + i] = to[i];
}

__global__ void IntegersKernel(uint32_t* out) {
  const uint32_t lane = threadIdx.x, x = 0x9e3779b9u * (lane + 1), y = 0x85ebca6bu * (lane + 3);
  const int sx = static_cast<int>(x), sy = static_cast<int>(y);
  uint32_t* to = out + lane * kNumWords;
  to[0] = static_cast<uint32_t>(__dp4a(sx, sy, 5));
  to[1] = __dp4a(x, y, 5u);
  to[2] = __byte_perm(x, y, 0x5410);
  to[3] = __byte_perm(x, y, 0xba98);
  to[4] = gpu::Lop3<(0xf0 & 0xcc) | 0xaa>(x, y, lane);
  to[5] = gpu::Lop3<0x6a>(x, y, lane);
  to[6] = __umulhi(x, y);
  to[7] = __brev(x);
  to[8] = static_cast<uint32_t>(__clz(sx >> lane));
  to[9] = static_cast<uint32_t>(__ffs(sx << lane));
  to[10] = static_cast<uint32_t>(__popc(x));
  to[11] = __funnelshift_l(x, y, lane + 1);
  to[12] = __funnelshift_r(x, y, lane + 1);
  const float value = (static_cast<float>(lane) - 15.5f) * 1.5f;
  to[13] = static_cast<uint32_t>(__float2int_rn(value));
  to[14] = static_cast<uint32_t>(__float2int_rz(value));
  to[15] = static_cast<uint32_t>(__float2int_rn(value * 3e9f));
  to[16] = __float_as_uint(__half2float(__float2half_rn(value / 3.0f)));
  to[17] = __float_as_uint(__bfloat162float(__float2bfloat16_rn(value / 3.0f)));
  const __half h =
      __hfma(__float2half_rn(value / 3.0f), __float2half_rn(0.7f), __float2half_rn(0.3f));
  to[18] = __float_as_uint(__half2float(h));
  to[19] = __float_as_uint(fmaf(value, 0.7f, 0.3f));
}

__global__ void LanesKernel(uint32_t* out) {
  const uint32_t lane = threadIdx.x, x = 0x9e3779b9u * (lane + 1);
  uint32_t* to = out + lane * kNumWords;
  to[0] = __shfl_sync(kAll, x, 5);
  to[1] = __shfl_sync(kAll, x, 3, 8);
  to[2] = __shfl_up_sync(kAll, x, 3);
  to[3] = __shfl_up_sync(kAll, x, 2, 8);
  to[4] = __shfl_down_sync(kAll, x, 3);
  to[5] = __shfl_down_sync(kAll, x, 2, 8);
  to[6] = __shfl_xor_sync(kAll, x, 7);
  to[7] = __shfl_xor_sync(kAll, x, 3, 4);
  to[8] = __ballot_sync(kAll, lane % 3 == 0);
  to[9] = static_cast<uint32_t>(__any_sync(kAll, lane == 31));
  to[10] = static_cast<uint32_t>(__all_sync(kAll, lane != 31));
  to[11] = __match_any_sync(kAll, lane % 5);
  to[12] = __reduce_add_sync(kAll, x);
  to[13] = __reduce_max_sync(kAll, x);
  to[14] = static_cast<uint32_t>(__reduce_min_sync(kAll, static_cast<int>(x)));
  // Both halves of a diverged warp, each by its own mask.
  if (lane < 16) {
    to[15] = __shfl_xor_sync(0x0000ffffu, x, 1);
  } else {
    to[15] = __shfl_xor_sync(0xffff0000u, x, 2);
  }
  gpu::NamedBarrier(3, 32);
  for (int i = 16; i < kNumWords; ++i) to[i] = 0;
}

gpu::LaunchShape OneWarp(cudaStream_t stream) {
  return {.grid = dim3(1), .block = dim3(32), .stream = stream};
}

}  // namespace

template <class T>
cudaError_t MultiplyTile(const T* a, const T* b, float* out, cudaStream_t stream) {
  return gpu::Launch(MultiplyTileKernel<T>, OneWarp(stream), a, b, out);
}
template cudaError_t MultiplyTile(const __half*, const __half*, float*, cudaStream_t);
template cudaError_t MultiplyTile(const __nv_bfloat16*, const __nv_bfloat16*, float*, cudaStream_t);

cudaError_t MultiplyBytes(const std::int8_t* a, const std::int8_t* b, int* out,
                          cudaStream_t stream) {
  return gpu::Launch(MultiplyBytesKernel, OneWarp(stream), a, b, out);
}

cudaError_t LoadMatrices(const std::uint16_t* in, int matrices, bool transpose, uint32_t* out,
                         cudaStream_t stream) {
  const auto kernel =
      matrices == 4 ? (transpose ? LoadMatricesKernel<4, true> : LoadMatricesKernel<4, false>)
                    : (transpose ? LoadMatricesKernel<2, true> : LoadMatricesKernel<2, false>);
  return gpu::Launch(kernel, OneWarp(stream), in, out);
}

cudaError_t CopyParts(const void* in, int bytes, int valid, void* out, cudaStream_t stream) {
  const auto kernel = bytes == 16  ? CopyPartsKernel<16>
                      : bytes == 8 ? CopyPartsKernel<8>
                                   : CopyPartsKernel<4>;
  return gpu::Launch(kernel, OneWarp(stream), static_cast<const unsigned char*>(in), valid,
                     static_cast<unsigned char*>(out));
}

cudaError_t Integers(uint32_t* out, cudaStream_t stream) {
  return gpu::Launch(IntegersKernel, OneWarp(stream), out);
}
cudaError_t Lanes(uint32_t* out, cudaStream_t stream) {
  return gpu::Launch(LanesKernel, OneWarp(stream), out);
}

}  // namespace baton::vocabulary
