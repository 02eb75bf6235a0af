// Each test plants one bug in a kernel. Which kind of run shows it is the table in
// tests/cuda_emulation/README.md; each row of it is a test here.
#include <cmath>
#include <functional>

#include "tests/unit/cuda_emulation/emulation_test.h"

namespace cuda_emulation {
namespace {

using baton::gpu::CopyAsync16;
using baton::gpu::CopyAsyncCommit;
using baton::gpu::CopyAsyncWait;
using baton::gpu::DynamicSharedMemory;
using baton::gpu::SharedMemory;

constexpr int kThreads = 128;

struct Slots {
  float v[kThreads];
};
struct alignas(16) Vectors {
  float4 v[kThreads];
};

// out[b * kThreads + t] = kThreads - 1 - t, through shared memory.
constexpr int kMirrorBarrierLine = __LINE__ + 5;
template <bool kSync>
__global__ void Mirror(float* out) {
  Slots& slots = SharedMemory<Slots>();
  slots.v[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (kSync) __syncthreads();
  out[blockIdx.x * kThreads + threadIdx.x] = slots.v[kThreads - 1 - threadIdx.x];
}

// Four rounds through one buffer: each reads what its mirror wrote in this round.
template <bool kTrailingSync>
__global__ void MirrorRounds(float* out) {
  Slots& slots = SharedMemory<Slots>();
  float sum = 0.0f;
  for (int round = 0; round < 4; ++round) {
    slots.v[threadIdx.x] = static_cast<float>(threadIdx.x) + 1000.0f * round;
    __syncthreads();
    sum += slots.v[kThreads - 1 - threadIdx.x] - 1000.0f * round;
    if (kTrailingSync) __syncthreads();
  }
  out[threadIdx.x] = sum / 4.0f;
}

// Only TSan sees what a shuffle does not order.
__global__ void ShuffleAsBarrier(float* out) {
  Slots& slots = SharedMemory<Slots>();
  slots.v[threadIdx.x] = static_cast<float>(threadIdx.x);
  const float zero = 0.0f * __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  out[threadIdx.x] = slots.v[31 - threadIdx.x] + zero;
}
__global__ void SyncWarpAsBarrier(float* out) {
  Slots& slots = SharedMemory<Slots>();
  slots.v[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = slots.v[31 - threadIdx.x];
}

template <bool kAtomic>
__global__ void CountThreads(float* out) {
  if (kAtomic) {
    atomicAdd(out, 1.0f);
  } else {
    out[0] += 1.0f;
  }
}

// "Last block done": sums what all blocks wrote.
template <bool kFence>
__global__ void SumOfBlocks(float* out, float* parts, unsigned* count) {
  if (threadIdx.x != 0) return;
  parts[blockIdx.x] = 1.0f;
  if (kFence) __threadfence();
  if (atomicAdd(count, 1u) != gridDim.x - 1) return;
  if (kFence) __threadfence();
  float sum = 0.0f;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += parts[block];
  out[0] = sum;
}

template <bool kWait>
__global__ void CopyThenMirror(float* out, const float4* in) {
  Vectors& vectors = SharedMemory<Vectors>();
  CopyAsync16(&vectors.v[threadIdx.x], in + threadIdx.x);
  CopyAsyncCommit();
  if (kWait) CopyAsyncWait<0>();
  __syncthreads();
  out[threadIdx.x] = vectors.v[kThreads - 1 - threadIdx.x].x;
}

// Overwrites a buffer by cp.async that others still read.
template <bool kTrailingSync>
__global__ void CopyOverReaders(float* out, const float4* in) {
  Vectors& vectors = SharedMemory<Vectors>();
  float sum = 0.0f;
  for (int round = 0; round < 4; ++round) {
    CopyAsync16(&vectors.v[threadIdx.x], in + round * kThreads + threadIdx.x);
    CopyAsyncCommit();
    CopyAsyncWait<0>();
    __syncthreads();
    sum += vectors.v[kThreads - 1 - threadIdx.x].x;
    if (kTrailingSync) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

__global__ void DivergentBarrier() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void HalfOfWarpShuffles() {
  if (threadIdx.x < 16) __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}
__global__ void MaskWithoutCaller() { __shfl_xor_sync(0x0000ffffu, 1.0f, 1); }
__global__ void ExitsBeforeShuffle() {
  if (threadIdx.x == 31) return;
  __syncwarp(0x7fffffffu);
  __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}
__global__ void ShuffleMeetsVote() {
  if (threadIdx.x % 2 == 0) {
    __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  } else {
    __any_sync(0xffffffffu, 1);
  }
}
__global__ void BarrierOfTooMany() { baton::gpu::NamedBarrier(1, 96); }
__global__ void TooMuchStatic() {
  struct Big {
    char bytes[(48 << 10) + 1];
  };
  SharedMemory<Big>().bytes[threadIdx.x] = 0;
}
__global__ void MisalignedCopy(const float* in) { CopyAsync16(&SharedMemory<Vectors>(), in + 1); }
__global__ void Asserts() { baton::gpu::DeviceAssert(threadIdx.x != 7, "thread 7 is here"); }

__global__ void ReadsUninitialised(float* out) { out[threadIdx.x] = SharedMemory<Slots>().v[0]; }
__global__ void ReadsGlobal(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x]; }
__global__ void WritesAt(float* out, int first) { out[first + static_cast<int>(threadIdx.x)] = 1; }
__global__ void WritesPastDynamic(float* out) {
  float* shared = DynamicSharedMemory<float>();
  shared[threadIdx.x + 1] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x];
}
__global__ void ReadsVector(float4* out, const float* in) {
  out[threadIdx.x] = *reinterpret_cast<const float4*>(in);
}

class PlantedBugsTest : public EmulationTest {
 protected:
  using Right = std::function<float(int)>;
  // Under how many of the four orders some element is wrong.
  template <class... P, class... A>
  int OrdersWithErrors(const Right& right, void (*kernel)(P...), unsigned blocks, unsigned threads,
                       A... arguments) {
    int wrong_orders = 0;
    float* out = NewDevice<float>(blocks * threads);
    for (Schedule schedule : AllOrders()) {
      schedule.copies = copies_;
      SetSchedule(schedule);
      EXPECT_EQ(Run(kernel, blocks, threads, out, arguments...), cudaSuccess);
      const std::vector<float> got = Read(out, blocks * threads);
      bool wrong = false;
      for (unsigned i = 0; i < got.size(); ++i) {
        wrong |= !(got[i] == right(static_cast<int>(i % threads)));
      }
      wrong_orders += wrong ? 1 : 0;
    }
    return wrong_orders;
  }
  // The child of a death test: TSan ends a process that saw a race with 66.
  template <class... P, class... A>
  [[noreturn]] void RunAndExit(void (*kernel)(P...), unsigned blocks, unsigned threads,
                               A... arguments) {
    Run(kernel, blocks, threads, arguments...);
    std::exit(0);
  }
  void ExpectFailure(const std::string& words, const std::string& place = "planted_bugs_test.cc") {
    EXPECT_NE(LastMessage().find(words), std::string::npos) << LastMessage();
    EXPECT_NE(LastMessage().find(place), std::string::npos) << LastMessage();
  }

  const Right mirrored_ = [](int i) { return static_cast<float>(kThreads - 1 - i); };
  AsyncCopies copies_ = AsyncCopies::kLate;
};

constexpr int kRaceExit = 66;
#define EXPECT_RACE(statement) \
  EXPECT_EXIT(statement, ::testing::ExitedWithCode(kRaceExit), "data race")

TEST_F(PlantedBugsTest, MissingBarrierGivesNaNInEveryOrder) {
  if (kThreadSanitizer) {
    float* out = NewDevice<float>(kThreads);
    EXPECT_RACE(RunAndExit(Mirror<false>, 1, kThreads, out));
    return;
  }
  EXPECT_EQ(OrdersWithErrors(mirrored_, Mirror<false>, 3, kThreads), 4);
  EXPECT_EQ(OrdersWithErrors(mirrored_, Mirror<true>, 3, kThreads), 0);
}

TEST_F(PlantedBugsTest, MissingTrailingBarrierGivesErrorsInSomeOrders) {
  if (kThreadSanitizer) {
    float* out = NewDevice<float>(kThreads);
    EXPECT_RACE(RunAndExit(MirrorRounds<false>, 1, kThreads, out));
    return;
  }
  EXPECT_GT(OrdersWithErrors(mirrored_, MirrorRounds<false>, 1, kThreads), 0);
  EXPECT_EQ(OrdersWithErrors(mirrored_, MirrorRounds<true>, 1, kThreads), 0);
}

TEST_F(PlantedBugsTest, RightKernelsRaceNowhere) {
  float* out = NewDevice<float>(8 * kThreads);
  float* parts = NewDevice<float>(8);
  unsigned* count = NewDevice(std::vector<unsigned>{0});
  const float4* in = NewDevice(std::vector<float4>(4 * kThreads, make_float4(1, 2, 3, 4)));
  for (const AsyncCopies copies : {AsyncCopies::kLate, AsyncCopies::kEarly, AsyncCopies::kRandom}) {
    SetSchedule({.order = Order::kRandom, .copies = copies});
    EXPECT_EQ(Run(Mirror<true>, 8, kThreads, out), cudaSuccess);
    EXPECT_EQ(Run(MirrorRounds<true>, 1, kThreads, out), cudaSuccess);
    EXPECT_EQ(Run(SyncWarpAsBarrier, 1, 32, out), cudaSuccess);
    EXPECT_EQ(Run(CopyThenMirror<true>, 1, kThreads, out, in), cudaSuccess);
    EXPECT_EQ(Run(CopyOverReaders<true>, 1, kThreads, out, in), cudaSuccess);
  }
  EXPECT_EQ(Run(SumOfBlocks<true>, 8, 32, out, parts, count), cudaSuccess);
  EXPECT_EQ(Read(out, 1)[0], 8.0f);
}

TEST_F(PlantedBugsTest, ShuffleAsBarrierIsARace) {
  if (!kThreadSanitizer) GTEST_SKIP() << "only ThreadSanitizer sees it";
  float* out = NewDevice<float>(32);
  EXPECT_RACE(RunAndExit(ShuffleAsBarrier, 1, 32, out));
}

TEST_F(PlantedBugsTest, BlocksThatShareAWordWithoutAtomicsRace) {
  float* out = NewDevice(std::vector<float>{0.0f});
  EXPECT_EQ(Run(CountThreads<true>, 16, 32, out), cudaSuccess);
  EXPECT_EQ(Read(out, 1)[0], 16 * 32);
  if (!kThreadSanitizer) GTEST_SKIP() << "only ThreadSanitizer sees the rest";
  EXPECT_RACE(RunAndExit(CountThreads<false>, 16, 32, out));
}

TEST_F(PlantedBugsTest, LastBlockWithoutFencesIsARace) {
  if (!kThreadSanitizer) GTEST_SKIP() << "only ThreadSanitizer sees it";
  float* out = NewDevice<float>(8);
  unsigned* count = NewDevice(std::vector<unsigned>{0});
  EXPECT_RACE(RunAndExit(SumOfBlocks<false>, 8, 32, out, out + 1, count));
}

TEST_F(PlantedBugsTest, MissingWaitForCopiesGivesNaNWhenTheyAreLate) {
  std::vector<float4> values;
  for (int i = 0; i < kThreads; ++i) values.push_back(make_float4(static_cast<float>(i), 0, 0, 0));
  const float4* in = NewDevice(values);

  EXPECT_EQ(OrdersWithErrors(mirrored_, CopyThenMirror<false>, 1, kThreads, in), 4);
  EXPECT_EQ(OrdersWithErrors(mirrored_, CopyThenMirror<true>, 1, kThreads, in), 0);
}

TEST_F(PlantedBugsTest, CopiesOverReadersShowWhenTheyAreEarly) {
  std::vector<float4> values;
  for (int i = 0; i < 4 * kThreads; ++i)
    values.push_back(make_float4(static_cast<float>(i), 0, 0, 0));
  const float4* in = NewDevice(values);
  copies_ = AsyncCopies::kEarly;
  if (kThreadSanitizer) {
    SetSchedule({.copies = copies_});
    float* out = NewDevice<float>(kThreads);
    EXPECT_RACE({
      SetSchedule({.copies = AsyncCopies::kEarly});
      RunAndExit(CopyOverReaders<false>, 1, kThreads, out, in);
    });
    return;
  }
  const auto right = [](int i) {
    return static_cast<float>(4 * (kThreads - 1 - i) + (0 + 1 + 2 + 3) * kThreads);
  };
  EXPECT_GT(OrdersWithErrors(right, CopyOverReaders<false>, 1, kThreads, in), 0);
  EXPECT_EQ(OrdersWithErrors(right, CopyOverReaders<true>, 1, kThreads, in), 0);
}

TEST_F(PlantedBugsTest, DivergentBarrierIsNamedWithBothPlaces) {
  EXPECT_EQ(Run(DivergentBarrier, 1, 64), cudaErrorLaunchFailure);
  ExpectFailure("divergent __syncthreads");
}

TEST_F(PlantedBugsTest, WrongMasksAreErrors) {
  EXPECT_EQ(Run(HalfOfWarpShuffles, 1, 32), cudaErrorLaunchFailure);
  ExpectFailure("16 threads wait forever");
  ResetDevices();
  EXPECT_EQ(Run(MaskWithoutCaller, 1, 32), cudaErrorLaunchFailure);
  ExpectFailure("does not name the calling lane");
  ResetDevices();
  EXPECT_EQ(Run(ExitsBeforeShuffle, 1, 32), cudaErrorLaunchFailure);
  ExpectFailure("have exited");
  ResetDevices();
  EXPECT_EQ(Run(ShuffleMeetsVote, 1, 32), cudaErrorLaunchFailure);
  ExpectFailure("different warp operations");
}

TEST_F(PlantedBugsTest, DeadlockIsNamedWithItsPlace) {
  EXPECT_EQ(Run(BarrierOfTooMany, 1, 64), cudaErrorLaunchFailure);
  ExpectFailure("deadlock: 64 threads wait forever");
}

TEST_F(PlantedBugsTest, LimitsOfSharedMemoryHold) {
  EXPECT_EQ(Run(TooMuchStatic, 1, 32), cudaErrorLaunchFailure);
  ExpectFailure("static shared memory", "Launch");
}

TEST_F(PlantedBugsTest, MisalignedCopyIsAnError) {
  const float* in = NewDevice<float>(32);
  EXPECT_EQ(Run(MisalignedCopy, 1, 32, in), cudaErrorLaunchFailure);
  ExpectFailure("no multiple", "Launch");
}

TEST_F(PlantedBugsTest, AssertionNamesItsThread) {
  EXPECT_EQ(Run(Asserts, 2, 32), cudaErrorLaunchFailure);
  ExpectFailure("thread 7 is here", "thread 7");
}

TEST_F(PlantedBugsTest, UninitialisedMemoryReadsAsNaN) {
  float* out = NewDevice<float>(32);
  EXPECT_EQ(Run(ReadsUninitialised, 1, 32, out), cudaSuccess);
  EXPECT_TRUE(std::isnan(Read(out, 32)[5]));
  const float* in = NewDevice<float>(32);
  EXPECT_EQ(Run(ReadsGlobal, 1, 32, out, in), cudaSuccess);
  EXPECT_TRUE(std::isnan(Read(out, 32)[5]));
}

TEST_F(PlantedBugsTest, OverrunByOneStopsUnderAddressSanitizer) {
  if (!kAddressSanitizer) GTEST_SKIP() << "only AddressSanitizer sees it";
  float* out = NewDevice<float>(100);
  EXPECT_DEATH(Run(WritesAt, 1, 32, out, 100 - 31), "heap-buffer-overflow");
  EXPECT_DEATH(
      {
        baton::gpu::Launch(WritesPastDynamic,
                           {.grid = dim3(1),
                            .block = dim3(32),
                            .dynamic_shared_bytes = 32 * sizeof(float),
                            .stream = stream()},
                           out);
        cudaStreamSynchronize(stream());
      },
      "heap-buffer-overflow");
}

TEST_F(PlantedBugsTest, UseAfterFreeStopsUnderAddressSanitizer) {
  if (!kAddressSanitizer) GTEST_SKIP() << "only AddressSanitizer sees it";
  EXPECT_DEATH(
      {
        void* memory = nullptr;
        cudaMalloc(&memory, 4096);
        cudaFree(memory);
        Run(WritesAt, 1, 32, static_cast<float*>(memory), 0);
      },
      "heap-use-after-free");
}

TEST_F(PlantedBugsTest, MisalignedVectorStopsUnderTheSanitizers) {
  if (!kAddressSanitizer) GTEST_SKIP() << "only UndefinedBehaviorSanitizer sees it";
  const float* in = NewDevice<float>(32);
  float4* out = NewDevice<float4>(32);
  EXPECT_DEATH(Run(ReadsVector, 1, 32, out, in + 1), "misaligned address");
}

// What the guard mode sees; the children read the environment anew.
TEST_F(PlantedBugsTest, GuardStopsHostAccessAndFarOverruns) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "a mode of plain builds";
  setenv("CUDA_EMULATION_GUARD", "1", 1);
  EXPECT_DEATH(*const_cast<volatile float*>(NewDevice<float>(64)) = 1.0f, "");
  EXPECT_DEATH(Run(WritesAt, 1, 32, NewDevice<float>(1024), 1024), "");
  EXPECT_DEATH(
      {
        void* memory = nullptr;
        cudaMalloc(&memory, 4096);
        cudaFree(memory);
        Run(WritesAt, 1, 32, static_cast<float*>(memory), 0);
      },
      "");
  EXPECT_EXIT(
      {
        float* out = NewDevice<float>(2 * kThreads);
        const bool ran = Run(Mirror<true>, 2, kThreads, out) == cudaSuccess;
        std::exit(ran && Read(out, 1)[0] == kThreads - 1 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  unsetenv("CUDA_EMULATION_GUARD");
}

// The mutation test stands on this.
TEST_F(PlantedBugsTest, SkippedBarrierIsLeftOut) {
  if (kThreadSanitizer) GTEST_SKIP() << "a skipped barrier is a race";
  std::string site;
  float* out = NewDevice<float>(kThreads);
  ASSERT_EQ(Run(Mirror<true>, 1, kThreads, out), cudaSuccess);
  for (const std::string& met : BarriersMet()) {
    if (met.find("planted_bugs_test.cc:" + std::to_string(kMirrorBarrierLine)) != std::string::npos)
      site = met;
  }
  ASSERT_FALSE(site.empty());

  SkipBarrier(site.substr(site.find("tests/unit")));
  EXPECT_EQ(OrdersWithErrors(mirrored_, Mirror<true>, 1, kThreads), 4);
  SkipBarrier("");
  EXPECT_EQ(OrdersWithErrors(mirrored_, Mirror<true>, 1, kThreads), 0);
}

}  // namespace
}  // namespace cuda_emulation
