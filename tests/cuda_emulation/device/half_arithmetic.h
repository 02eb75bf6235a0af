#pragma once
// What NVIDIA's headers of the 16-bit floats leave to nvcc. Each result is computed in float and
// rounded once, as the device does.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

inline __half __hfma(__half a, __half b, __half c) {
  return __double2half(static_cast<double>(__half2float(a)) * static_cast<double>(__half2float(b)) +
                       static_cast<double>(__half2float(c)));
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __double2bfloat16(static_cast<double>(__bfloat162float(a)) *
                               static_cast<double>(__bfloat162float(b)) +
                           static_cast<double>(__bfloat162float(c)));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

inline __half hexp(__half x) { return __float2half_rn(std::exp(__half2float(x))); }
inline __half hexp2(__half x) { return __float2half_rn(std::exp2(__half2float(x))); }
inline __half hlog(__half x) { return __float2half_rn(std::log(__half2float(x))); }
inline __half hrcp(__half x) { return __float2half_rn(1.0f / __half2float(x)); }
inline __half hsqrt(__half x) { return __float2half_rn(std::sqrt(__half2float(x))); }
inline __half hrsqrt(__half x) { return __float2half_rn(1.0f / std::sqrt(__half2float(x))); }
inline __half htanh(__half x) { return __float2half_rn(std::tanh(__half2float(x))); }
inline __nv_bfloat16 hexp(__nv_bfloat16 x) {
  return __float2bfloat16_rn(std::exp(__bfloat162float(x)));
}
inline __nv_bfloat16 hexp2(__nv_bfloat16 x) {
  return __float2bfloat16_rn(std::exp2(__bfloat162float(x)));
}
inline __nv_bfloat16 hrcp(__nv_bfloat16 x) {
  return __float2bfloat16_rn(1.0f / __bfloat162float(x));
}
inline __nv_bfloat16 hsqrt(__nv_bfloat16 x) {
  return __float2bfloat16_rn(std::sqrt(__bfloat162float(x)));
}
inline __half2 h2exp2(__half2 x) { return {hexp2(x.x), hexp2(x.y)}; }
inline __nv_bfloat162 h2exp2(__nv_bfloat162 x) { return {hexp2(x.x), hexp2(x.y)}; }
