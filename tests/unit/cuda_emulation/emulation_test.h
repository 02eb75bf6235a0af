#pragma once
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulation/controls.h"
#include "gpu/portable.h"

// What the tests of the emulation share. Kernels stand in the tests themselves, so this and they
// are compiled as .cu files are.
namespace cuda_emulation {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// Leaves nothing behind: no faults, no failed device, no objects.
class EmulationTest : public ::testing::Test {
 protected:
  EmulationTest() : before_(CountLiveObjects()), schedule_(CurrentSchedule()) {
    // Children of death tests start afresh, with the environment that the test sets.
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  }
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    ClearFaults();
    SkipBarrier("");
    SetSchedule(schedule_);
    ResetDevices();
    cudaSetDevice(0);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    for (void* memory : memory_) EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(CountLiveObjects(), before_);
  }

  cudaStream_t stream() const { return stream_; }

  // Freed at the end of the test.
  template <class T>
  T* NewDevice(std::size_t count) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
    memory_.push_back(memory);
    return static_cast<T*>(memory);
  }
  template <class T>
  T* NewDevice(const std::vector<T>& values) {
    T* memory = NewDevice<T>(values.size());
    EXPECT_EQ(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
    return memory;
  }
  template <class T>
  std::vector<T> Read(const T* memory, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(
        cudaMemcpyAsync(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost, stream_),
        cudaSuccess);
    return values;
  }
  template <class... P, class... A>
  cudaError_t Run(void (*kernel)(P...), unsigned blocks, unsigned threads, A&&... arguments) {
    const cudaError_t launched = baton::gpu::Launch(
        kernel, {.grid = dim3(blocks), .block = dim3(threads), .stream = stream_},
        std::forward<A>(arguments)...);
    return launched != cudaSuccess ? launched : cudaStreamSynchronize(stream_);
  }

 private:
  const LiveObjects before_;
  const Schedule schedule_;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

inline const std::vector<Schedule>& AllOrders() {
  static const std::vector<Schedule> orders = {
      {.order = Order::kForward},
      {.order = Order::kReverse},
      {.order = Order::kRandom, .seed = 3},
      {.order = Order::kRandom, .seed = 4},
  };
  return orders;
}

}  // namespace cuda_emulation
