#include "tests/unit/cuda_emulation/nccl_world.h"

// How communicators of the emulated NCCL come up, fail and end.
namespace cuda_emulation {
namespace {

constexpr std::size_t kBytes = 8 << 20;

std::size_t FreeMemory() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

ncclConfig_t NonBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = 2;
  return config;
}

TEST_F(NcclTest, InitialisationThatNobodyJoinsIsAborted) {
  ncclUniqueId id;
  ExpectNccl(ncclGetUniqueId(&id));
  ncclConfig_t config = NonBlocking();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  ExpectNccl(ncclCommGetAsyncError(comm, &state));
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
  ExpectNccl(ncclCommAbort(comm));
}

TEST_F(NcclTest, NonBlockingCommunicatorMustBePolled) {
  World world(2, /*blocking=*/false);
  const OnDevice<char> from(16), to(16);
  EXPECT_EQ(ncclSend(from.get(), 8, ncclInt8, 1, world.comms[0], world.streams[0]), ncclInProgress);
  EXPECT_EQ(ncclSend(from.get(), 8, ncclInt8, 1, world.comms[0], world.streams[0]),
            ncclInvalidUsage);
  ExpectNccl(AwaitSettled(world.comms[0]));
  ExpectNccl(ncclSend(from.get(), 8, ncclInt8, 1, world.comms[0], world.streams[0]));
  EXPECT_EQ(ncclRecv(to.get(), 8, ncclInt8, 0, world.comms[1], world.streams[1]), ncclInProgress);
  ExpectNccl(AwaitSettled(world.comms[1]));
  ExpectNccl(ncclRecv(to.get(), 8, ncclInt8, 0, world.comms[1], world.streams[1]));
  world.Synchronize();
  for (ncclComm_t& comm : world.comms) {
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    ExpectNccl(AwaitSettled(comm));
    ExpectNccl(ncclCommDestroy(comm));
    comm = nullptr;
  }
}

TEST_F(NcclTest, FinalizingWaitsForOperations) {
  World world(2, /*blocking=*/false);
  const OnDevice<char> from(16), to(16);
  ncclSend(from.get(), 8, ncclInt8, 1, world.comms[0], world.streams[0]);
  ExpectNccl(AwaitSettled(world.comms[0]));
  EXPECT_EQ(ncclCommFinalize(world.comms[0]), ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(world.Error(0), ncclInProgress);
  ncclRecv(to.get(), 8, ncclInt8, 0, world.comms[1], world.streams[1]);
  ExpectNccl(AwaitSettled(world.comms[0]));
}

TEST_F(NcclTest, NetworkTellsOfADeadPeer) {
  World world(2);
  const OnDevice<char> from(kBytes);
  ExpectNccl(ncclSend(from.get(), kBytes, ncclInt8, 1, world.comms[0], world.streams[0]));
  World::Abort(world.comms[1]);
  EXPECT_TRUE(Await([&] { return world.Error(0) == ncclRemoteError; }));
  EXPECT_TRUE(Await([&] { return world.Idle(0); }));
}

TEST_F(NcclTest, SharedMemoryDoesNotTellOfADeadPeerAndAnAbortEndsTheHang) {
  GlobalNcclOptions().hang_on_peer_death = true;
  World world(2);
  const OnDevice<char> from(kBytes);
  ExpectNccl(ncclSend(from.get(), kBytes, ncclInt8, 1, world.comms[0], world.streams[0]));
  World::Abort(world.comms[1]);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(world.Error(0), ncclSuccess);
  EXPECT_FALSE(world.Idle(0));
  World::Abort(world.comms[0]);
  EXPECT_TRUE(Await([&] { return world.Idle(0); }));
}

TEST_F(NcclTest, AbortingOnePairLeavesOthersAlone) {
  World first(2), second(2);
  const OnDevice<char> from(kBytes), to(kBytes);
  ncclSend(from.get(), kBytes, ncclInt8, 1, first.comms[0], first.streams[0]);
  ncclSend(from.get(), kBytes, ncclInt8, 1, second.comms[0], second.streams[0]);
  World::Abort(first.comms[0]);
  ncclRecv(to.get(), kBytes, ncclInt8, 0, second.comms[1], second.streams[1]);
  second.Synchronize();
  EXPECT_EQ(second.Error(0), ncclSuccess);
  EXPECT_EQ(second.Error(1), ncclSuccess);
}

TEST_F(NcclTest, RevokingEndsOperationsAndAllowsDestroying) {
  World world(2, /*blocking=*/false);
  const OnDevice<char> from(kBytes);
  ncclSend(from.get(), kBytes, ncclInt8, 1, world.comms[0], world.streams[0]);
  EXPECT_EQ(ncclCommRevoke(world.comms[0], NCCL_REVOKE_DEFAULT), ncclInProgress);
  ExpectNccl(AwaitSettled(world.comms[0]));
  EXPECT_TRUE(Await([&] { return world.Idle(0); }));
  EXPECT_EQ(ncclCommFinalize(world.comms[0]), ncclInvalidUsage);
  EXPECT_EQ(ncclSend(from.get(), 1, ncclInt8, 1, world.comms[0], world.streams[0]),
            ncclInvalidUsage);
  ExpectNccl(ncclCommDestroy(world.comms[0]));
  world.comms[0] = nullptr;
}

TEST_F(NcclTest, AnAbortMayHang) {
  GlobalNcclOptions().abort_hangs = true;
  World world(2);
  std::atomic<bool> ended{false};
  std::thread reaper([&] {
    World::Abort(world.comms[0]);
    ended = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(ended);
  GlobalNcclOptions().abort_hangs = false;
  reaper.join();
}

TEST_F(NcclTest, SecondThreadInsideACommunicatorIsRefused) {
  World world(2);
  const OnDevice<char> from(kBytes), to(kBytes);
  ncclSend(from.get(), kBytes, ncclInt8, 1, world.comms[0], world.streams[0]);
  std::thread finalizing([&] { ExpectNccl(ncclCommFinalize(world.comms[0])); });
  EXPECT_TRUE(
      Await([&] { return ncclCommDeregister(world.comms[0], nullptr) == ncclInvalidUsage; }));
  ncclRecv(to.get(), kBytes, ncclInt8, 0, world.comms[1], world.streams[1]);
  finalizing.join();
}

TEST_F(NcclTest, CommunicatorsTakeDeviceMemoryByTheirChannels) {
  const std::size_t before = FreeMemory();
  ncclUniqueId id;
  ExpectNccl(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = 2;
  ncclComm_t comm = nullptr;
  ExpectNccl(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  EXPECT_EQ(before - FreeMemory(), std::size_t{2} * (6 << 20));
  ExpectNccl(ncclCommDestroy(comm));
  EXPECT_EQ(FreeMemory(), before);

  ExpectNccl(ncclGetUniqueId(&id));
  config.maxCTAs = 1 << 20;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclUnhandledCudaError);
}

TEST_F(NcclTest, RegisteredBuffersAreDeregisteredBeforeTheEnd) {
  World world(1);
  const OnDevice<char> buffer(64);
  void* handle = nullptr;
  ExpectNccl(ncclCommRegister(world.comms[0], buffer.get(), 64, &handle));
  EXPECT_EQ(ncclCommDestroy(world.comms[0]), ncclInvalidUsage);
  ExpectNccl(ncclCommDeregister(world.comms[0], handle));
  EXPECT_EQ(ncclCommDeregister(world.comms[0], handle), ncclInvalidArgument);
}

TEST_F(NcclTest, SplitsByColour) {
  World world(4);
  std::vector<ncclComm_t> split(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      ExpectNccl(ncclCommSplit(world.comms[rank], rank == 3 ? NCCL_SPLIT_NOCOLOR : rank % 2, -rank,
                               &split[rank], nullptr));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(split[3], nullptr);
  int size = 0, rank = 0;
  ncclCommCount(split[0], &size);
  ncclCommUserRank(split[0], &rank);
  EXPECT_EQ(size, 2);
  EXPECT_EQ(rank, 1) << "the keys order them backwards";
  for (int i = 0; i < 3; ++i) ExpectNccl(ncclCommDestroy(split[i]));
}

TEST_F(NcclTest, ShrinksAroundADeadRank) {
  GlobalNcclOptions().hang_on_peer_death = true;
  World world(3);
  const OnDevice<char> from(kBytes);
  ncclSend(from.get(), kBytes, ncclInt8, 2, world.comms[0], world.streams[0]);
  World::Abort(world.comms[2]);
  std::vector<ncclComm_t> left(2);
  int dead = 2;
  std::thread other([&] {
    ExpectNccl(ncclCommShrink(world.comms[1], &dead, 1, &left[1], nullptr, NCCL_SHRINK_ABORT));
  });
  ExpectNccl(ncclCommShrink(world.comms[0], &dead, 1, &left[0], nullptr, NCCL_SHRINK_ABORT));
  other.join();
  int size = 0;
  ncclCommCount(left[0], &size);
  EXPECT_EQ(size, 2);
  for (const ncclComm_t comm : left) ExpectNccl(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace cuda_emulation
