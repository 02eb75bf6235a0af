// Injected faults, failed devices, several devices, none at all, leaks.
#include <functional>
#include <map>
#include <thread>

#include "tests/unit/cuda_emulation/emulation_test.h"

namespace cuda_emulation {
namespace {

__global__ void Nothing() {}
__global__ void Fails() { baton::gpu::DeviceAssert(false, "as planted"); }

class FaultsTest : public EmulationTest {};

TEST_F(FaultsTest, TakesEffectAtTheCallThatIsCounted) {
  InjectFault({.call = "cudaMalloc", .error = cudaErrorMemoryAllocation, .after = 1, .times = 2});
  std::vector<cudaError_t> errors;
  for (int i = 0; i < 4; ++i) {
    void* memory = nullptr;
    errors.push_back(cudaMalloc(&memory, 16));
    if (errors.back() == cudaSuccess) cudaFree(memory);
  }
  const cudaError_t out = cudaErrorMemoryAllocation;
  EXPECT_EQ(errors, (std::vector<cudaError_t>{cudaSuccess, out, out, cudaSuccess}));
}

TEST_F(FaultsTest, EveryCallTakesThem) {
  void* memory = nullptr;
  char* device = NewDevice<char>(64);
  std::vector<char> host(64);
  cudaStream_t made = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaDeviceProp properties;
  int number = 0;
  std::size_t size = 0;
  const std::map<std::string, std::function<cudaError_t()>> calls = {
      {"cudaMalloc", [&] { return cudaMalloc(&memory, 16); }},
      {"cudaHostAlloc", [&] { return cudaHostAlloc(&memory, 16, 0); }},
      {"cudaFree", [&] { return cudaFree(nullptr); }},
      {"cudaFreeHost", [&] { return cudaFreeHost(nullptr); }},
      {"cudaHostRegister", [&] { return cudaHostRegister(host.data(), 64, 0); }},
      {"cudaMemGetInfo", [&] { return cudaMemGetInfo(&size, &size); }},
      {"cudaGetDeviceCount", [&] { return cudaGetDeviceCount(&number); }},
      {"cudaSetDevice", [&] { return cudaSetDevice(0); }},
      {"cudaGetDevice", [&] { return cudaGetDevice(&number); }},
      {"cudaGetDeviceProperties", [&] { return cudaGetDeviceProperties(&properties, 0); }},
      {"cudaDeviceGetAttribute",
       [&] { return cudaDeviceGetAttribute(&number, cudaDevAttrWarpSize, 0); }},
      {"cudaStreamCreateWithFlags",
       [&] { return cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking); }},
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(stream()); }},
      {"cudaStreamQuery", [&] { return cudaStreamQuery(stream()); }},
      {"cudaStreamWaitEvent", [&] { return cudaStreamWaitEvent(stream(), event, 0); }},
      {"cudaDeviceSynchronize", [&] { return cudaDeviceSynchronize(); }},
      {"cudaEventCreateWithFlags", [&] { return cudaEventCreateWithFlags(&event, 0); }},
      {"cudaEventRecord", [&] { return cudaEventRecord(event, stream()); }},
      {"cudaEventQuery", [&] { return cudaEventQuery(event); }},
      {"cudaEventSynchronize", [&] { return cudaEventSynchronize(event); }},
      {"cudaMemcpyAsync",
       [&] { return cudaMemcpyAsync(device, host.data(), 64, cudaMemcpyDefault, stream()); }},
      {"cudaMemsetAsync", [&] { return cudaMemsetAsync(device, 0, 64, stream()); }},
      {"cudaLaunchKernelExC",
       [&] {
         return baton::gpu::Launch(Nothing,
                                   {.grid = dim3(1), .block = dim3(32), .stream = stream()});
       }},
      {"cudaFuncSetAttribute", [&] { return baton::gpu::AllowSharedMemory(Nothing, 1024); }},
      {"cudaStreamBeginCapture",
       [&] { return cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed); }},
      {"cudaStreamEndCapture", [&] { return cudaStreamEndCapture(stream(), &graph); }},
      {"cudaGraphInstantiate", [&] { return cudaGraphInstantiate(nullptr, nullptr, 0); }},
      {"cudaGraphLaunch", [&] { return cudaGraphLaunch(nullptr, stream()); }},
  };
  for (const auto& [name, call] : calls) {
    InjectFault({.call = name, .error = cudaErrorUnknown});
    EXPECT_EQ(call(), cudaErrorUnknown) << name;
  }
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(FaultsTest, StickyErrorAnswersEveryLaterCall) {
  EXPECT_EQ(Run(Fails, 2, 32), cudaErrorLaunchFailure);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_NE(LastMessage().find("as planted"), std::string::npos);
}

TEST_F(FaultsTest, KernelFailsWhenItRuns) {
  InjectFault({.call = "kernel", .error = cudaErrorIllegalAddress, .after = 1});
  const baton::gpu::LaunchShape shape{.grid = dim3(1), .block = dim3(32), .stream = stream()};
  EXPECT_EQ(baton::gpu::Launch(Nothing, shape), cudaSuccess);
  EXPECT_EQ(baton::gpu::Launch(Nothing, shape), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorIllegalAddress);
}

// The rest sets the environment of children.
class EnvironmentTest : public EmulationTest {
 protected:
  void Set(const char* name, const char* value) {
    setenv(name, value, 1);
    names_.push_back(name);
  }
  void TearDown() override {
    for (const char* name : names_) unsetenv(name);
    EmulationTest::TearDown();
  }

 private:
  std::vector<const char*> names_;
};

[[noreturn]] void MeetFaults() {
  void* memory = nullptr;
  const bool good = cudaMalloc(&memory, 16) == cudaErrorMemoryAllocation &&
                    cudaMalloc(&memory, 16) == cudaSuccess &&
                    cudaEventQuery(nullptr) == cudaErrorUnknown &&
                    cudaMalloc(&memory, 16) == cudaErrorUnknown;
  std::_Exit(good ? 0 : 1);
}

TEST_F(EnvironmentTest, FaultsComeFromTheEnvironment) {
  Set("CUDA_EMULATION_FAULT", "cudaMalloc:0:device=0,cudaEventQuery:0:error=999:sticky");
  EXPECT_EXIT(MeetFaults(), ::testing::ExitedWithCode(0), "");
}

TEST_F(EnvironmentTest, MisspeltSettingsStopTheProcess) {
  Set("CUDA_EMULATION_ORDER", "backwards");
  EXPECT_EXIT(CurrentSchedule(), ::testing::ExitedWithCode(2), "not understood");
}

[[noreturn]] void AskWithoutDriver() {
  int count = 7, version = 7;
  cudaStream_t stream = nullptr;
  const bool good = cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver && count == 0 &&
                    cudaDriverGetVersion(&version) == cudaSuccess && version == 0 &&
                    cudaSetDevice(0) == cudaErrorInsufficientDriver &&
                    cudaStreamCreate(&stream) == cudaErrorInsufficientDriver;
  std::_Exit(good ? 0 : 1);
}

// No fixture: its set-up makes a stream.
TEST(NoDriverTest, EveryCallSaysSo) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  setenv("CUDA_EMULATION_NO_DEVICE", "1", 1);
  EXPECT_EXIT(AskWithoutDriver(), ::testing::ExitedWithCode(0), "");
  unsetenv("CUDA_EMULATION_NO_DEVICE");
}

// Exits with the number of the first expectation that does not hold.
[[noreturn]] void UseTwoDevices() {
  int expectations = 0;
  const auto expect = [&expectations](bool holds) {
    ++expectations;
    if (!holds) std::_Exit(expectations);
  };
  std::size_t free = 0, total = 0;
  void *memory = nullptr, *other = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  expect(cudaSetDevice(2) == cudaErrorInvalidDevice && cudaSetDevice(0) == cudaSuccess);
  expect(cudaMalloc(&memory, 4096) == cudaSuccess);
  expect(cudaMemGetInfo(&free, &total) == cudaSuccess && free == total - 4096);
  expect(cudaEventCreate(&event) == cudaSuccess);
  expect(cudaSetDevice(1) == cudaSuccess);
  expect(cudaMemGetInfo(&free, &total) == cudaSuccess && free == total);
  expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  expect(cudaMalloc(&other, 4096) == cudaSuccess);
  expect(cudaMemcpyPeerAsync(other, 1, memory, 0, 4096, stream) == cudaSuccess);
  expect(cudaMemcpyPeerAsync(other, 0, memory, 1, 4096, stream) == cudaErrorInvalidValue);
  // An event of one device, a stream of the other.
  expect(cudaEventRecord(event, stream) == cudaErrorInvalidResourceHandle);
  std::thread([&] {  // a thread begins with device 0
    int device = -1;
    expect(cudaGetDevice(&device) == cudaSuccess && device == 0);
    const baton::gpu::LaunchShape shape{.grid = dim3(1), .block = dim3(32), .stream = stream};
    expect(baton::gpu::Launch(Fails, shape) == cudaErrorInvalidResourceHandle);
    expect(cudaSetDevice(1) == cudaSuccess && baton::gpu::Launch(Fails, shape) == cudaSuccess);
  })
      .join();
  expect(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  expect(cudaFree(other) == cudaErrorLaunchFailure);
  expect(cudaSetDevice(0) == cudaSuccess && cudaFree(memory) == cudaSuccess);
  std::_Exit(0);
}

TEST_F(EnvironmentTest, DevicesHaveTheirOwnMemoryStreamsAndErrors) {
  Set("CUDA_EMULATION_DEVICES", "2");
  EXPECT_EXIT(UseTwoDevices(), ::testing::ExitedWithCode(0), "");
}

TEST_F(EnvironmentTest, LeaksEndTheProcessWhenAsked) {
  Set("CUDA_EMULATION_LEAKS", "1");
  EXPECT_EXIT(std::exit(0), ::testing::ExitedWithCode(99), "left at exit: 0 device allocations");
}

}  // namespace
}  // namespace cuda_emulation
