// Streams, events and several grids at once.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/cuda_emulation/emulation_test.h"

namespace cuda_emulation {
namespace {

__global__ void Fill(float* out, float value) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__global__ void AddOne(float* out) { out[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f; }

// Two grids that can only end together. Real kernels do not wait for each other.
__global__ void Meet(unsigned* here, const unsigned* there) {
  std::atomic_ref<unsigned>(*here).store(1);
  while (std::atomic_ref<unsigned>(*const_cast<unsigned*>(there)).load() == 0) {
    std::this_thread::yield();
  }
}

class StreamsTest : public EmulationTest {
 protected:
  void SetUp() override {
    EmulationTest::SetUp();
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other_), cudaSuccess);
    EmulationTest::TearDown();
  }
  template <class... P, class... A>
  void Enqueue(cudaStream_t where, void (*kernel)(P...), unsigned blocks, A... arguments) {
    ASSERT_EQ(baton::gpu::Launch(kernel, {.grid = dim3(blocks), .block = dim3(32), .stream = where},
                                 arguments...),
              cudaSuccess);
  }
  // Fills on one stream, adds on the other; ordered by an event if asked for.
  void FillThenAdd(bool ordered) {
    float* out = NewDevice<float>(64 * 32);
    Enqueue(stream(), Fill, 64, out, 1.0f);
    if (ordered) {
      EXPECT_EQ(cudaEventRecord(event_, stream()), cudaSuccess);
      EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
    }
    Enqueue(other_, AddOne, 64, out);
    EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
    if (ordered) {
      for (const float value : Read(out, 64 * 32)) EXPECT_EQ(value, 2.0f);
    }
  }

  cudaStream_t other_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

TEST_F(StreamsTest, GridsOfTwoStreamsRunAtOnce) {
  unsigned* flags = NewDevice(std::vector<unsigned>{0, 0});
  Enqueue(stream(), Meet, 1, flags, static_cast<const unsigned*>(flags + 1));
  Enqueue(other_, Meet, 1, flags + 1, static_cast<const unsigned*>(flags));
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
}

TEST_F(StreamsTest, EventOrdersTwoStreams) { FillThenAdd(true); }

TEST_F(StreamsTest, MissingEventIsARace) {
  if (!kThreadSanitizer) GTEST_SKIP() << "only ThreadSanitizer sees it";
  EXPECT_EXIT(
      {
        FillThenAdd(false);
        std::exit(0);
      },
      ::testing::ExitedWithCode(66), "data race");
}

TEST_F(StreamsTest, HostThatReadsWithoutWaitingIsARace) {
  if (!kThreadSanitizer) GTEST_SKIP() << "only ThreadSanitizer sees it";
  EXPECT_EXIT(
      {
        float* out = NewDevice<float>(32);
        void* pinned = nullptr;
        cudaHostAlloc(&pinned, 32 * sizeof(float), cudaHostAllocDefault);
        Enqueue(stream(), Fill, 1, out, 1.0f);
        cudaMemcpyAsync(pinned, out, 32 * sizeof(float), cudaMemcpyDeviceToHost, stream());
        static_cast<volatile float*>(pinned)[3] = 5.0f;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        std::exit(0);
      },
      ::testing::ExitedWithCode(66), "data race");
}

TEST_F(StreamsTest, EventIsAWaitForItsLastRecord) {
  unsigned* flags = NewDevice(std::vector<unsigned>{0, 0});
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);  // never recorded
  Enqueue(stream(), Meet, 1, flags, static_cast<const unsigned*>(flags + 1));
  EXPECT_EQ(cudaEventRecord(event_, stream()), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream()), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(other_), cudaSuccess);

  Enqueue(other_, Meet, 1, flags + 1, static_cast<const unsigned*>(flags));
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
}

TEST_F(StreamsTest, TimedEventsTellTime) {
  float milliseconds = -1.0f;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event_, event_), cudaErrorInvalidResourceHandle);
  cudaEvent_t timed[2];
  for (cudaEvent_t& event : timed) {
    ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event, stream()), cudaSuccess);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed[0], timed[1]), cudaSuccess);
  EXPECT_GE(milliseconds, 0.0f);
  for (const cudaEvent_t event : timed) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(StreamsTest, HostFunctionRunsInOrder) {
  float* out = NewDevice<float>(32);
  bool ran = false;
  Enqueue(stream(), Fill, 1, out, 3.0f);
  EXPECT_EQ(cudaLaunchHostFunc(
                stream(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &ran),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  EXPECT_TRUE(ran);
}

TEST_F(StreamsTest, DestroyedStreamFinishesItsWork) {
  float* out = NewDevice<float>(32);
  cudaStream_t brief = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking), cudaSuccess);
  Enqueue(brief, Fill, 1, out, 4.0f);
  ASSERT_EQ(cudaEventRecord(event_, brief), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(brief), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(Read(out, 32)[31], 4.0f);
  EXPECT_EQ(cudaStreamSynchronize(brief), cudaErrorInvalidResourceHandle);
}

TEST_F(StreamsTest, ManyThreadsLaunchOnTheirOwnStreams) {
  std::vector<float*> outs;
  for (int i = 0; i < 4; ++i) outs.push_back(NewDevice<float>(16 * 32));
  std::vector<std::thread> threads;
  for (float* out : outs) {
    threads.emplace_back([out] {
      cudaStream_t own = nullptr;
      EXPECT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
      const baton::gpu::LaunchShape shape{.grid = dim3(16), .block = dim3(32), .stream = own};
      EXPECT_EQ(baton::gpu::Launch(Fill, shape, out, 0.0f), cudaSuccess);
      for (int i = 0; i < 20; ++i) EXPECT_EQ(baton::gpu::Launch(AddOne, shape, out), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(own), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(own), cudaSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (float* out : outs) EXPECT_EQ(Read(out, 16 * 32), std::vector<float>(16 * 32, 20.0f));
}

}  // namespace
}  // namespace cuda_emulation
