#include "gpu/device_buffer.h"

#include <cuda_runtime_api.h>

#include "gpu/status.h"

namespace baton::gpu {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(std::size_t bytes) {
  if (bytes == 0) return DeviceBuffer();
  void* data = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaMalloc(&data, bytes));
  return DeviceBuffer(static_cast<std::byte*>(data), bytes);
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

absl::StatusOr<PinnedBuffer> PinnedBuffer::Create(std::size_t bytes) {
  if (bytes == 0) return PinnedBuffer();
  void* data = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaHostAlloc(&data, bytes, cudaHostAllocDefault));
  return PinnedBuffer(static_cast<std::byte*>(data), bytes);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

}  // namespace baton::gpu
