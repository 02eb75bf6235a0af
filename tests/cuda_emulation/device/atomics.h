#pragma once
// Atomics: relaxed, as on the device, so that TSan sees only the order that fences make.
#include <atomic>
#include <type_traits>

namespace cuda_emulation {
template <class T, class Change>
T AtomicChange(T* at, const Change& change) {
  std::atomic_ref<T> value(*at);
  T old = value.load(std::memory_order_relaxed);
  while (!value.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}
}  // namespace cuda_emulation

// All return what was there before. T: int, unsigned, unsigned long long; add and exchange also
// float, add also double.
template <class T>
T atomicAdd(T* at, std::type_identity_t<T> x) {
  return cuda_emulation::AtomicChange(at, [x](T old) { return static_cast<T>(old + x); });
}
template <class T>
T atomicSub(T* at, std::type_identity_t<T> x) {
  return cuda_emulation::AtomicChange(at, [x](T old) { return static_cast<T>(old - x); });
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> x) {
  return cuda_emulation::AtomicChange(at, [x](T old) { return old < x ? x : old; });
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> x) {
  return cuda_emulation::AtomicChange(at, [x](T old) { return x < old ? x : old; });
}
template <class T>
T atomicAnd(T* at, std::type_identity_t<T> x) {
  return cuda_emulation::AtomicChange(at, [x](T old) { return old & x; });
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> x) {
  return cuda_emulation::AtomicChange(at, [x](T old) { return old | x; });
}
template <class T>
T atomicXor(T* at, std::type_identity_t<T> x) {
  return cuda_emulation::AtomicChange(at, [x](T old) { return old ^ x; });
}
// Counts up to `last`, then starts at 0 again.
inline unsigned atomicInc(unsigned* at, unsigned last) {
  return cuda_emulation::AtomicChange(at,
                                      [last](unsigned old) { return old >= last ? 0 : old + 1; });
}
inline unsigned atomicDec(unsigned* at, unsigned last) {
  return cuda_emulation::AtomicChange(
      at, [last](unsigned old) { return old == 0 || old > last ? last : old - 1; });
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> x) {
  return std::atomic_ref<T>(*at).exchange(x, std::memory_order_relaxed);
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> x) {
  std::atomic_ref<T>(*at).compare_exchange_strong(expected, x, std::memory_order_relaxed);
  return expected;
}
