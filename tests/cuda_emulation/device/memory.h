#pragma once
// Loads and stores with cache hints (the hints do nothing here), and cp.async.
#include <cstdint>

#include "cuda_emulation/kernel_api.h"

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldca(const T* at) {
  return *at;
}
template <class T>
T __ldcg(const T* at) {
  return *at;
}
template <class T>
T __ldcs(const T* at) {
  return *at;
}
template <class T>
T __ldlu(const T* at) {
  return *at;
}
template <class T>
T __ldcv(const T* at) {
  return *at;
}
template <class T>
void __stwb(T* at, T value) {
  *at = value;
}
template <class T>
void __stcg(T* at, T value) {
  *at = value;
}
template <class T>
void __stcs(T* at, T value) {
  *at = value;
}
template <class T>
void __stwt(T* at, T value) {
  *at = value;
}

namespace cuda_emulation {
// The copy of cp.async, compiled with the kernel so that the sanitizers see its accesses: `bytes`
// (a multiple of 4) to `to`, of which the first `valid` come from `from` and the rest are zero.
inline void CopyBytes(void* to, const void* from, int bytes, int valid) {
  for (int at = 0; at < bytes; at += 4) {
    std::uint32_t word = 0;
    if (at + 4 <= valid) {
      word = static_cast<const std::uint32_t*>(from)[at / 4];
    } else {
      for (int byte = at; byte < valid; ++byte) {
        word |= std::uint32_t{static_cast<const unsigned char*>(from)[byte]} << 8 * (byte - at);
      }
    }
    static_cast<std::uint32_t*>(to)[at / 4] = word;
  }
}
}  // namespace cuda_emulation
