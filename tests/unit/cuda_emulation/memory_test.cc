// Memory, copies and what the runtime refuses.
#include <cstring>

#include "tests/unit/cuda_emulation/emulation_test.h"

namespace cuda_emulation {
namespace {

constexpr std::size_t kBytes = 1024;

__global__ void Nothing() {}

class MemoryTest : public EmulationTest {
 protected:
  void ExpectRefused(cudaError_t error, const std::string& words) {
    EXPECT_NE(error, cudaSuccess);
    EXPECT_NE(LastMessage().find(words), std::string::npos) << LastMessage();
  }
};

TEST_F(MemoryTest, CopiesGoThereAndBack) {
  std::vector<char> out(kBytes), in(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) in[i] = static_cast<char>(i * 7);
  char* a = NewDevice<char>(kBytes);
  char* b = NewDevice<char>(kBytes);
  EXPECT_EQ(cudaMemcpyAsync(a, in.data(), kBytes, cudaMemcpyHostToDevice, stream()), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(b, a, kBytes, cudaMemcpyDeviceToDevice, stream()), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(out.data(), b, kBytes, cudaMemcpyDefault, stream()), cudaSuccess);
  EXPECT_EQ(out, in);  // to pageable memory a copy is over when the call returns
}

TEST_F(MemoryTest, PageableSourceMayChangeAfterTheCall) {
  std::vector<char> in(kBytes, 1);
  char* a = NewDevice<char>(kBytes);
  EXPECT_EQ(cudaMemcpyAsync(a, in.data(), kBytes, cudaMemcpyHostToDevice, stream()), cudaSuccess);
  in.assign(kBytes, 2);
  EXPECT_EQ(Read(a, 1)[0], 1);
}

TEST_F(MemoryTest, RowsKeepTheirPitch) {
  std::vector<char> in(4 * 16), out(4 * 8, 0);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<char>(i);
  char* a = NewDevice<char>(4 * 32);
  EXPECT_EQ(cudaMemcpy2DAsync(a, 32, in.data(), 16, 8, 4, cudaMemcpyHostToDevice, stream()),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpy2DAsync(out.data(), 8, a, 32, 8, 4, cudaMemcpyDeviceToHost, stream()),
            cudaSuccess);
  for (int row = 0; row < 4; ++row) {
    for (int i = 0; i < 8; ++i) EXPECT_EQ(out[row * 8 + i], row * 16 + i);
  }
  ExpectRefused(cudaMemcpy2DAsync(a, 4, in.data(), 16, 8, 4, cudaMemcpyHostToDevice, stream()),
                "wider than their pitch");
  ExpectRefused(cudaMemcpy2DAsync(a, 40, in.data(), 16, 16, 4, cudaMemcpyHostToDevice, stream()),
                "leaves its allocation");
}

TEST_F(MemoryTest, WrongDirectionsAndRangesAreRefused) {
  std::vector<char> host(2 * kBytes);
  char* a = NewDevice<char>(kBytes);
  const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream());
  };
  ExpectRefused(copy(a, host.data(), kBytes, cudaMemcpyDeviceToHost), "direction");
  ExpectRefused(copy(host.data(), a, kBytes, cudaMemcpyHostToDevice), "direction");
  ExpectRefused(copy(a, host.data(), kBytes, cudaMemcpyDeviceToDevice), "direction");
  ExpectRefused(copy(a, host.data(), kBytes + 1, cudaMemcpyHostToDevice), "leaves its allocation");
  ExpectRefused(copy(host.data(), a + 1, kBytes, cudaMemcpyDeviceToHost), "leaves its allocation");
  ExpectRefused(copy(a, a + 8, 16, cudaMemcpyDeviceToDevice), "overlap");
  ExpectRefused(cudaMemsetAsync(host.data(), 0, 16, stream()), "one allocation");
  ExpectRefused(cudaMemsetAsync(a, 0, kBytes + 1, stream()), "one allocation");
}

TEST_F(MemoryTest, FreeingTwiceAndForeignAddressesAreRefused) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
  ExpectRefused(cudaFree(static_cast<char*>(memory) + 8), "begins no live allocation");
  ExpectRefused(cudaFreeHost(memory), "begins no live allocation");
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  ExpectRefused(cudaFree(memory), "begins no live allocation");
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST_F(MemoryTest, DeviceHasItsRoomAndNoMore) {
  std::size_t free = 0, total = 0, later = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, total + 1), cudaErrorMemoryAllocation);
  ExpectRefused(cudaErrorUnknown, "has no room");
  NewDevice<char>(kBytes);
  ASSERT_EQ(cudaMemGetInfo(&later, &total), cudaSuccess);
  EXPECT_EQ(later, free - kBytes);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(MemoryTest, RegisteredMemoryIsPinned) {
  std::vector<char> host(kBytes);
  EXPECT_EQ(cudaHostRegister(host.data(), kBytes, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(host.data(), kBytes, 0), cudaErrorHostMemoryAlreadyRegistered);
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, host.data() + 5), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
}

TEST_F(MemoryTest, NullStreamIsRefused) {
  char* a = NewDevice<char>(kBytes);
  ExpectRefused(cudaMemsetAsync(a, 0, kBytes, nullptr), "NULL stream");
  ExpectRefused(cudaStreamSynchronize(nullptr), "NULL stream");
  ExpectRefused(baton::gpu::Launch(Nothing, {.grid = dim3(1), .block = dim3(32)}), "NULL stream");
}

TEST_F(MemoryTest, BadLaunchesAreRefused) {
  const auto launch = [this](dim3 grid, dim3 block, std::size_t shared) {
    return baton::gpu::Launch(
        Nothing,
        {.grid = grid, .block = block, .dynamic_shared_bytes = shared, .stream = stream()});
  };
  EXPECT_EQ(launch(dim3(1), dim3(32), 48 << 10), cudaSuccess);
  EXPECT_EQ(launch(dim3(0), dim3(32), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), dim3(32), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(1056), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(33), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(32, 2), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(32), (48 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(baton::gpu::AllowSharedMemory(Nothing, (227 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(baton::gpu::AllowSharedMemory(Nothing, 227 << 10), cudaSuccess);
  EXPECT_EQ(launch(dim3(1), dim3(32), 227 << 10), cudaSuccess);
  EXPECT_EQ(baton::gpu::AllowSharedMemory(Nothing, 48 << 10), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
}

// A graph may outlive the memory it names.
TEST_F(MemoryTest, ReplayedCopyOfFreedMemoryFailsTheDevice) {
  void* a = nullptr;
  ASSERT_EQ(cudaMalloc(&a, kBytes), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(a, 0, kBytes, stream()), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaFree(a), cudaSuccess);

  EXPECT_EQ(cudaGraphLaunch(executable, stream()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorIllegalAddress);
  ResetDevices();
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

}  // namespace
}  // namespace cuda_emulation
