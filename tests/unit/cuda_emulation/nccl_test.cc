#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <numeric>
#include <random>

#include "tests/unit/cuda_emulation/nccl_world.h"

// What the emulated NCCL moves and computes, and how it refuses misuse.
namespace cuda_emulation {
namespace {

std::vector<int> Numbers(std::size_t count, int first) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST_F(NcclTest, SendEndsOnlyWhenItsReceiveHasTakenEverything) {
  World world(2);
  for (const std::size_t count : {1, 4096, 1 << 20}) {
    SCOPED_TRACE(count);
    const OnDevice<int> from(Numbers(count, 7)), to(count);
    ExpectNccl(ncclSend(from.get(), count, ncclInt32, 1, world.comms[0], world.streams[0]));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(world.Idle(0)) << "nobody has received";
    ExpectNccl(ncclRecv(to.get(), count, ncclInt32, 0, world.comms[1], world.streams[1]));
    world.Synchronize();
    EXPECT_EQ(to.Read(), Numbers(count, 7));
  }
}

TEST_F(NcclTest, MessagesOfAGroupGoBothWaysAtOnce) {
  World world(2);
  constexpr std::size_t kCount = 1 << 18;
  const OnDevice<int> a(Numbers(kCount, 1)), b(Numbers(kCount, 2)), to_a(kCount), to_b(kCount);
  ncclGroupStart();
  ExpectNccl(ncclSend(a.get(), kCount, ncclInt32, 1, world.comms[0], world.streams[0]));
  ExpectNccl(ncclRecv(to_a.get(), kCount, ncclInt32, 1, world.comms[0], world.streams[0]));
  ExpectNccl(ncclSend(b.get(), kCount, ncclInt32, 0, world.comms[1], world.streams[1]));
  ExpectNccl(ncclRecv(to_b.get(), kCount, ncclInt32, 0, world.comms[1], world.streams[1]));
  ExpectNccl(ncclGroupEnd());
  world.Synchronize();
  EXPECT_EQ(to_a.Read(), Numbers(kCount, 2));
  EXPECT_EQ(to_b.Read(), Numbers(kCount, 1));
}

TEST_F(NcclTest, OperationsOfOneCommunicatorKeepTheirOrderOverStreams) {
  World world(2);
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  const OnDevice<int> first(std::vector<int>{1}), second(std::vector<int>{2}), to(2);
  ExpectNccl(ncclSend(first.get(), 1, ncclInt32, 1, world.comms[0], world.streams[0]));
  ExpectNccl(ncclSend(second.get(), 1, ncclInt32, 1, world.comms[0], other));
  for (int i = 0; i < 2; ++i) {
    ExpectNccl(ncclRecv(to.get() + i, 1, ncclInt32, 0, world.comms[1], world.streams[1]));
  }
  world.Synchronize();
  cudaStreamSynchronize(other);
  EXPECT_EQ(to.Read(), (std::vector<int>{1, 2}));
  cudaStreamDestroy(other);
}

template <class T>
T Make(double value) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
void CheckAllReduce(ncclDataType_t type, int num_ranks) {
  SCOPED_TRACE(static_cast<int>(type));
  World world(num_ranks);
  std::mt19937 random(static_cast<unsigned>(type));
  constexpr std::size_t kCount = 1000;
  std::vector<std::vector<T>> in(num_ranks);
  std::vector<OnDevice<T>> device;
  for (auto& values : in) {
    for (std::size_t i = 0; i < kCount; ++i) values.push_back(Make<T>(1 + random() % 16));
    device.emplace_back(values);
  }
  ncclGroupStart();
  for (int rank = 0; rank < num_ranks; ++rank) {
    ExpectNccl(ncclAllReduce(device[rank].get(), device[rank].get(), kCount, type, ncclSum,
                             world.comms[rank], world.streams[rank]));
  }
  ExpectNccl(ncclGroupEnd());
  world.Synchronize();
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto got = device[rank].Read();
    for (std::size_t i = 0; i < kCount; ++i) {
      double sum = 0;
      for (const auto& values : in) sum += static_cast<double>(static_cast<float>(values[i]));
      ASSERT_EQ(static_cast<double>(static_cast<float>(got[i])), sum) << "rank " << rank;
    }
  }
}

TEST_F(NcclTest, AllReduceSumsEveryType) {
  CheckAllReduce<float>(ncclFloat32, 3);
  CheckAllReduce<double>(ncclFloat64, 2);
  CheckAllReduce<__half>(ncclFloat16, 4);
  CheckAllReduce<__nv_bfloat16>(ncclBfloat16, 3);
  CheckAllReduce<std::int8_t>(ncclInt8, 2);
  CheckAllReduce<std::int32_t>(ncclInt32, 3);
  CheckAllReduce<std::int64_t>(ncclInt64, 1);
}

TEST_F(NcclTest, AllReduceAddsInRankOrderWithTheSameBitsOnEveryRank) {
  World world(3);
  const std::vector<float> parts = {1e8f, 1.0f, -1e8f};
  std::vector<OnDevice<float>> device;
  for (const float part : parts) device.emplace_back(std::vector<float>{part});
  ncclGroupStart();
  for (int rank = 0; rank < 3; ++rank) {
    ncclAllReduce(device[rank].get(), device[rank].get(), 1, ncclFloat32, ncclSum,
                  world.comms[rank], world.streams[rank]);
  }
  ExpectNccl(ncclGroupEnd());
  world.Synchronize();
  const float expected = (parts[0] + parts[1]) + parts[2];
  for (const auto& buffer : device) EXPECT_EQ(buffer.Read()[0], expected);
}

TEST_F(NcclTest, GathersScattersAndBroadcasts) {
  World world(3);
  std::vector<OnDevice<int>> in, gathered, scattered, sent;
  for (int rank = 0; rank < 3; ++rank) {
    in.emplace_back(std::vector<int>{rank, rank + 10, rank + 20});
    gathered.emplace_back(9);
    scattered.emplace_back(1);
    sent.emplace_back(3);
  }
  for (int rank = 0; rank < 3; ++rank) {
    const auto comm = world.comms[rank];
    const auto stream = world.streams[rank];
    ExpectNccl(ncclAllGather(in[rank].get(), gathered[rank].get(), 3, ncclInt32, comm, stream));
    ExpectNccl(ncclReduceScatter(in[rank].get(), scattered[rank].get(), 1, ncclInt32, ncclMax, comm,
                                 stream));
    ExpectNccl(ncclBroadcast(in[rank].get(), sent[rank].get(), 3, ncclInt32, 1, comm, stream));
  }
  world.Synchronize();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(gathered[rank].Read(), (std::vector<int>{0, 10, 20, 1, 11, 21, 2, 12, 22}));
    EXPECT_EQ(scattered[rank].Read(), (std::vector<int>{2 + 10 * rank}));
    EXPECT_EQ(sent[rank].Read(), (std::vector<int>{1, 11, 21}));
  }
}

TEST_F(NcclTest, CapturedAllReduceRunsAtEachLaunchOfTheGraph) {
  World world(2);
  std::vector<OnDevice<float>> device;
  std::vector<cudaGraphExec_t> graphs(2);
  for (int rank = 0; rank < 2; ++rank) {
    device.emplace_back(std::vector<float>{1.0f + static_cast<float>(rank)});
    const cudaStream_t stream = world.streams[rank];
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ExpectNccl(ncclAllReduce(device[rank].get(), device[rank].get(), 1, ncclFloat32, ncclSum,
                             world.comms[rank], stream));
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&graphs[rank], graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_EQ(device[0].Read()[0], 1.0f) << "capturing executes nothing";
  for (int launch = 0; launch < 3; ++launch) {
    for (int rank = 0; rank < 2; ++rank) cudaGraphLaunch(graphs[rank], world.streams[rank]);
    world.Synchronize();
  }
  for (const auto& buffer : device) EXPECT_EQ(buffer.Read()[0], 12.0f);
  EXPECT_EQ(ncclCommDestroy(world.comms[0]), ncclInvalidUsage) << "a graph refers to it";
  for (const cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
  ExpectNccl(ncclCommDestroy(world.comms[0]));
  world.comms[0] = nullptr;
}

TEST_F(NcclTest, MismatchIsNamedOnBothSides) {
  World world(2);
  const OnDevice<char> from(64), to(64);
  ExpectNccl(ncclSend(from.get(), 32, ncclInt8, 1, world.comms[0], world.streams[0]));
  ExpectNccl(ncclRecv(to.get(), 64, ncclInt8, 0, world.comms[1], world.streams[1]));
  world.Synchronize();
  EXPECT_EQ(world.Error(0), ncclInvalidUsage);
  EXPECT_EQ(world.Error(1), ncclInvalidUsage);
  const std::string told = ncclGetLastError(world.comms[1]);
  EXPECT_NE(told.find("send of 32 bytes"), std::string::npos) << told;
  EXPECT_NE(told.find("send of 64 bytes"), std::string::npos) << told;
}

TEST_F(NcclTest, RefusesHostMemoryAndRangesBeyondAnAllocation) {
  World world(2);
  std::vector<char> host(16);
  const OnDevice<char> device(16);
  EXPECT_EQ(ncclSend(host.data(), 16, ncclInt8, 1, world.comms[0], world.streams[0]),
            ncclInvalidArgument);
  EXPECT_EQ(ncclSend(device.get() + 8, 16, ncclInt8, 1, world.comms[0], world.streams[0]),
            ncclInvalidArgument);
  EXPECT_EQ(ncclSend(device.get(), 16, ncclInt8, 2, world.comms[0], world.streams[0]),
            ncclInvalidArgument);
}

TEST_F(NcclTest, KeepsARateAndADelay) {
  World world(2);
  constexpr std::size_t kBytes = 1 << 20;
  const OnDevice<char> from(kBytes), to(kBytes);
  GlobalNcclOptions().bytes_per_second = 10 << 20;
  GlobalNcclOptions().delay_us = 20'000;
  const auto begin = std::chrono::steady_clock::now();
  ExpectNccl(ncclSend(from.get(), kBytes, ncclInt8, 1, world.comms[0], world.streams[0]));
  ExpectNccl(ncclRecv(to.get(), kBytes, ncclInt8, 0, world.comms[1], world.streams[1]));
  world.Synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took.count(), 0.1);
}

TEST_F(NcclTest, EveryCallTakesInjectedFaults) {
  World world(1);
  const ncclComm_t comm = world.comms[0];
  const cudaStream_t stream = world.streams[0];
  const OnDevice<float> x(4);
  void* out = nullptr;
  ncclComm_t made = nullptr;
  ncclUniqueId id;
  ncclResult_t state = ncclSuccess;
  const std::vector<std::pair<const char*, std::function<ncclResult_t()>>> calls = {
      {"ncclGetUniqueId", [&] { return ncclGetUniqueId(&id); }},
      {"ncclCommInitRankConfig", [&] { return ncclCommInitRank(&made, 1, id, 0); }},
      {"ncclCommGetAsyncError", [&] { return ncclCommGetAsyncError(comm, &state); }},
      {"ncclCommFinalize", [&] { return ncclCommFinalize(comm); }},
      {"ncclCommDestroy", [&] { return ncclCommDestroy(comm); }},
      {"ncclCommAbort", [&] { return ncclCommAbort(comm); }},
      {"ncclCommRevoke", [&] { return ncclCommRevoke(comm, 0); }},
      {"ncclCommSplit", [&] { return ncclCommSplit(comm, 0, 0, &made, nullptr); }},
      {"ncclCommShrink", [&] { return ncclCommShrink(comm, nullptr, 0, &made, nullptr, 0); }},
      {"ncclGroupStart", [&] { return ncclGroupStart(); }},
      {"ncclSend", [&] { return ncclSend(x.get(), 4, ncclFloat32, 0, comm, stream); }},
      {"ncclRecv", [&] { return ncclRecv(x.get(), 4, ncclFloat32, 0, comm, stream); }},
      {"ncclAllReduce",
       [&] { return ncclAllReduce(x.get(), x.get(), 4, ncclFloat32, ncclSum, comm, stream); }},
      {"ncclAllGather",
       [&] { return ncclAllGather(x.get(), x.get(), 4, ncclFloat32, comm, stream); }},
      {"ncclReduceScatter",
       [&] { return ncclReduceScatter(x.get(), x.get(), 4, ncclFloat32, ncclSum, comm, stream); }},
      {"ncclBroadcast",
       [&] { return ncclBroadcast(x.get(), x.get(), 4, ncclFloat32, 0, comm, stream); }},
      {"ncclMemAlloc", [&] { return ncclMemAlloc(&out, 16); }},
      {"ncclMemFree", [&] { return ncclMemFree(nullptr); }},
      {"ncclCommRegister", [&] { return ncclCommRegister(comm, x.get(), 16, &out); }},
      {"ncclCommDeregister", [&] { return ncclCommDeregister(comm, out); }},
  };
  for (const auto& [name, call] : calls) {
    InjectNcclFault(name, ncclSystemError);
    EXPECT_EQ(call(), ncclSystemError) << name;
  }
  ncclGroupStart();
  InjectNcclFault("ncclGroupEnd", ncclSystemError);
  EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
}

}  // namespace
}  // namespace cuda_emulation
