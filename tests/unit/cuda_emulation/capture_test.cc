// Capture of streams into graphs, and the calls that break it.
#include <functional>
#include <thread>

#include "tests/unit/cuda_emulation/emulation_test.h"

namespace cuda_emulation {
namespace {

__global__ void Add(float* out, float value) { out[threadIdx.x] += value; }
__global__ void Double(float* out) { out[threadIdx.x] *= 2.0f; }

class CaptureTest : public EmulationTest {
 protected:
  void SetUp() override {
    EmulationTest::SetUp();
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    for (cudaEvent_t& event : events_) {
      ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    }
    out_ = NewDevice(std::vector<float>(32, 0.0f));
  }
  void TearDown() override {
    for (const cudaEvent_t event : events_) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other_), cudaSuccess);
    EmulationTest::TearDown();
  }
  void Begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream(), mode), cudaSuccess);
  }
  cudaError_t End(cudaGraph_t* graph) { return cudaStreamEndCapture(stream(), graph); }
  cudaError_t EndAndDrop() {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = End(&graph);
    if (graph != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    return error;
  }
  void EnqueueAdd(cudaStream_t where, float value) {
    ASSERT_EQ(
        baton::gpu::Launch(Add, {.grid = dim3(1), .block = dim3(32), .stream = where}, out_, value),
        cudaSuccess);
  }
  void Fork(cudaEvent_t event) {
    ASSERT_EQ(cudaEventRecord(event, stream()), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other_, event, 0), cudaSuccess);
  }
  void Join(cudaEvent_t event) {
    ASSERT_EQ(cudaEventRecord(event, other_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(stream(), event, 0), cudaSuccess);
  }

  cudaStream_t other_ = nullptr;
  cudaEvent_t events_[3] = {};
  float* out_ = nullptr;
};

TEST_F(CaptureTest, ForkedAndJoinedWorkIsReplayed) {
  Begin();
  EnqueueAdd(stream(), 1.0f);
  Fork(events_[0]);
  EnqueueAdd(other_, 10.0f);
  Join(events_[1]);
  EnqueueAdd(stream(), 100.0f);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(End(&graph), cudaSuccess);
  EXPECT_EQ(Read(out_, 1)[0], 0.0f) << "a captured kernel must not run";
  std::size_t num_nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &num_nodes), cudaSuccess);
  EXPECT_EQ(num_nodes, 3u);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);

  for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(executable, stream()), cudaSuccess);

  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);  // launched work goes on
  EXPECT_EQ(Read(out_, 1)[0], 333.0f);
}

TEST_F(CaptureTest, UnjoinedForkIsRefused) {
  Begin();
  Fork(events_[0]);
  EnqueueAdd(other_, 1.0f);
  EXPECT_EQ(EndAndDrop(), cudaErrorStreamCaptureUnjoined);

  Begin();
  Fork(events_[0]);
  Join(events_[1]);
  EnqueueAdd(other_, 1.0f);  // after the join
  EXPECT_EQ(EndAndDrop(), cudaErrorStreamCaptureUnjoined);

  Begin();
  Fork(events_[0]);
  EnqueueAdd(other_, 1.0f);
  ASSERT_EQ(cudaEventRecord(events_[1], other_), cudaSuccess);  // recorded, and not waited for
  EXPECT_EQ(EndAndDrop(), cudaErrorStreamCaptureUnjoined);
}

TEST_F(CaptureTest, CallsThatWaitForTheDeviceInvalidate) {
  void* memory = nullptr;
  float host[32] = {};
  const std::vector<std::function<cudaError_t()>> calls = {
      [&] { return cudaMalloc(&memory, 16); },
      [&] { return cudaHostAlloc(&memory, 16, 0); },
      [&] { return cudaFree(out_); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaStreamSynchronize(stream()); },
      [&] { return cudaStreamQuery(stream()); },
      [&] { return cudaEventQuery(events_[2]); },
      [&] { return cudaMemcpy(host, out_, sizeof host, cudaMemcpyDeviceToHost); },
      [&] { return cudaMemset(out_, 0, 16); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    Begin();
    EXPECT_EQ(calls[i](), cudaErrorStreamCaptureUnsupported);
    cudaStreamCaptureStatus status{};
    EXPECT_EQ(cudaStreamIsCapturing(stream(), &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(EndAndDrop(), cudaErrorStreamCaptureInvalidated);
  }
}

TEST_F(CaptureTest, OtherThreadsAreBoundByGlobalCapturesOnly) {
  const auto allocate_elsewhere = [] {
    cudaError_t error = cudaErrorUnknown;
    std::thread([&error] {
      void* memory = nullptr;
      error = cudaMalloc(&memory, 16);
      if (error == cudaSuccess) cudaFree(memory);
    }).join();
    return error;
  };
  Begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(allocate_elsewhere(), cudaSuccess);
  EXPECT_EQ(EndAndDrop(), cudaSuccess);

  Begin(cudaStreamCaptureModeGlobal);
  EXPECT_EQ(allocate_elsewhere(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(EndAndDrop(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, PageableMemoryAndForeignEventsAreRefused) {
  float host[32] = {};
  Begin();
  EXPECT_EQ(cudaMemcpyAsync(out_, host, sizeof host, cudaMemcpyHostToDevice, stream()),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(EndAndDrop(), cudaSuccess);

  ASSERT_EQ(cudaEventRecord(events_[0], other_), cudaSuccess);
  Begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream(), events_[0], 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(EndAndDrop(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, CapturedEventCannotBeAskedByTheHost) {
  Begin();
  ASSERT_EQ(cudaEventRecord(events_[0], stream()), cudaSuccess);
  EXPECT_EQ(EndAndDrop(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(events_[0]), cudaErrorCapturedEvent);
  ASSERT_EQ(cudaEventRecord(events_[0], stream()), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(events_[0]), cudaSuccess);
}

TEST_F(CaptureTest, EndsOnlyWhereItBegan) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(End(&graph), cudaErrorIllegalState);
  Begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] {
    cudaGraph_t none = nullptr;
    elsewhere = cudaStreamEndCapture(stream(), &none);
  }).join();
  EXPECT_EQ(elsewhere, cudaErrorStreamCaptureWrongThread);
  Fork(events_[0]);
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(EndAndDrop(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, UpdateTakesNewParametersAndRefusesOtherKernels) {
  const auto capture = [&](float value, bool doubles) {
    Begin();
    EnqueueAdd(stream(), value);
    if (doubles) {
      EXPECT_EQ(baton::gpu::Launch(Double, {.grid = dim3(1), .block = dim3(32), .stream = stream()},
                                   out_),
                cudaSuccess);
    }
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(End(&graph), cudaSuccess);
    return graph;
  };
  const cudaGraph_t first = capture(1.0f, false), second = capture(5.0f, false),
                    third = capture(5.0f, true);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, first, 0), cudaSuccess);
  cudaGraphExecUpdateResultInfo info{};

  EXPECT_EQ(cudaGraphExecUpdate(executable, third, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  EXPECT_EQ(cudaGraphExecUpdate(executable, second, &info), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream()), cudaSuccess);

  EXPECT_EQ(Read(out_, 1)[0], 5.0f);
  for (const cudaGraph_t graph : {first, second, third}) {
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

}  // namespace
}  // namespace cuda_emulation
