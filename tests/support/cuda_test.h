#pragma once
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/device_buffer.h"
#include "gpu/stream.h"

// What tests of kernels share. The same tests run in the host emulation and, with the real
// libraries, on a device.
namespace baton::testing {

inline void ExpectCuda(cudaError_t error) {
  EXPECT_EQ(error, cudaSuccess) << cudaGetErrorName(error) << ": " << cudaGetErrorString(error);
}

// A stream, and copies that wait for it.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto stream = gpu::Stream::Create();
    ASSERT_TRUE(stream.ok()) << stream.status().ToString();
    stream_ = *std::move(stream);
  }
  cudaStream_t stream() const { return stream_.get(); }

  template <class T>
  gpu::DeviceBuffer ToDevice(const std::vector<T>& values) {
    auto buffer = gpu::DeviceBuffer::Create(values.size() * sizeof(T));
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    if (values.empty()) return *std::move(buffer);
    ExpectCuda(cudaMemcpyAsync(buffer->data(), values.data(), values.size() * sizeof(T),
                               cudaMemcpyHostToDevice, stream()));
    ExpectCuda(cudaStreamSynchronize(stream()));
    return *std::move(buffer);
  }
  gpu::DeviceBuffer OnDevice(std::size_t bytes) {
    auto buffer = gpu::DeviceBuffer::Create(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    return *std::move(buffer);
  }
  template <class T>
  std::vector<T> ToHost(const gpu::DeviceBuffer& buffer, std::size_t count) {
    std::vector<T> values(count);
    if (values.empty()) return values;
    ExpectCuda(cudaMemcpyAsync(values.data(), buffer.data(), count * sizeof(T),
                               cudaMemcpyDeviceToHost, stream()));
    ExpectCuda(cudaStreamSynchronize(stream()));
    return values;
  }

 private:
  gpu::Stream stream_;
};

}  // namespace baton::testing
