#pragma once
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cuda_emulation/nccl/controls.h"
#include "cuda_emulation/runtime.h"

// What the tests of the emulated NCCL share: ranks of one process, buffers, waits with deadlines.
namespace cuda_emulation {

inline void ExpectNccl(ncclResult_t result) { EXPECT_EQ(result, ncclSuccess); }

// Polls `done` for at most ten seconds.
template <class Done>
bool Await(Done done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

inline ncclResult_t AwaitSettled(ncclComm_t comm) {
  ncclResult_t result = ncclInProgress;
  Await([&] {
    ncclCommGetAsyncError(comm, &result);
    return result != ncclInProgress;
  });
  return result;
}

// Device memory of type T.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), cudaSuccess);
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice(OnDevice&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(other.count_) {}
  ~OnDevice() { cudaFree(data_); }
  T* get() const { return data_; }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

// All ranks of one communicator, each with a stream, driven by the test's thread.
class World {
 public:
  explicit World(int size, bool blocking = true) : comms(size), streams(size) {
    ncclUniqueId id;
    ExpectNccl(ncclGetUniqueId(&id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    config.maxCTAs = 1;
    ExpectNccl(ncclGroupStart());
    for (int rank = 0; rank < size; ++rank) {
      ExpectNccl(ncclCommInitRankConfig(&comms[rank], size, id, rank, &config));
      EXPECT_EQ(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking), cudaSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), blocking ? ncclSuccess : ncclInProgress);
    for (const ncclComm_t comm : comms) ExpectNccl(AwaitSettled(comm));
  }
  ~World() {
    for (ncclComm_t& comm : comms) Abort(comm);
    for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }
  static void Abort(ncclComm_t& comm) {
    ExpectNccl(ncclCommAbort(comm));
    comm = nullptr;
  }
  bool Idle(int rank) const { return cudaStreamQuery(streams[rank]) == cudaSuccess; }
  void Synchronize() const {
    for (const cudaStream_t stream : streams) {
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    }
  }
  ncclResult_t Error(int rank) const {
    ncclResult_t result = ncclSuccess;
    ncclCommGetAsyncError(comms[rank], &result);
    return result;
  }

  std::vector<ncclComm_t> comms;
  std::vector<cudaStream_t> streams;
};

// Puts the options back that a test changes, and takes injected faults away.
class NcclTest : public ::testing::Test {
 protected:
  void TearDown() override {
    ClearFaults();
    NcclOptions& options = GlobalNcclOptions();
    options.hang_on_peer_death = false;
    options.bytes_per_second = 0;
    options.delay_us = 0;
    options.abort_hangs = false;
    EXPECT_EQ(LiveCommunicators(), 0);
  }
};

}  // namespace cuda_emulation
