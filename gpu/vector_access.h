#pragma once
#include "gpu/portable.h"

// 16-byte accesses to eight 16-bit elements, and conversions that are generic over their type.
namespace baton::gpu {

template <class T>
struct alignas(16) Vec8 {
  T v[8];
};

// `p` is a multiple of 16 bytes.
template <class T>
__device__ __forceinline__ Vec8<T> Load8(const T* p) {
  union {
    uint4 raw;
    Vec8<T> vector;
  } bits;
  bits.raw = *reinterpret_cast<const uint4*>(p);
  return bits.vector;
}

template <class T>
__device__ __forceinline__ void Store8(T* p, const Vec8<T>& vector) {
  *reinterpret_cast<uint4*>(p) = *reinterpret_cast<const uint4*>(&vector);
}

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float ToFloat(__half x) { return __half2float(x); }

// Rounds to nearest even.
template <class T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}

// Eight neighbouring elements as floats; `p` is a multiple of 16 bytes.
template <class T>
__device__ __forceinline__ void LoadFloats8(const T* p, float (&to)[8]) {
  if constexpr (sizeof(T) == sizeof(float)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 v = reinterpret_cast<const float4*>(p)[half];
      to[4 * half] = v.x;
      to[4 * half + 1] = v.y;
      to[4 * half + 2] = v.z;
      to[4 * half + 3] = v.w;
    }
  } else {
    const Vec8<T> v = Load8(p);
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = ToFloat(v.v[i]);
  }
}

// Rounds to nearest even; `p` is a multiple of 16 bytes.
template <class T>
__device__ __forceinline__ void StoreFloats8(T* p, const float (&from)[8]) {
  if constexpr (sizeof(T) == sizeof(float)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      reinterpret_cast<float4*>(p)[half] =
          make_float4(from[4 * half], from[4 * half + 1], from[4 * half + 2], from[4 * half + 3]);
    }
  } else {
    Vec8<T> v;
#pragma unroll
    for (int i = 0; i < 8; ++i) v.v[i] = FromFloat<T>(from[i]);
    Store8(p, v);
  }
}

}  // namespace baton::gpu
