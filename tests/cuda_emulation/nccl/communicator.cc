#include "cuda_emulation/nccl/communicator.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda_emulation/nccl/controls.h"
#include "cuda_emulation/runtime.h"

namespace {

std::atomic<int> live_communicators{0};

std::int64_t FromEnvironment(const char* name, std::int64_t absent) {
  const char* value = std::getenv(name);
  return value == nullptr ? absent : std::strtoll(value, nullptr, 10);
}

bool Says(const char* name, const char* word) {
  const char* value = std::getenv(name);
  return value != nullptr && std::strcmp(value, word) == 0;
}

}  // namespace

ncclComm::ncclComm(int its_rank, int num_ranks, bool blocks, int channels)
    : rank(its_rank), size(num_ranks), blocking(blocks), max_channels(channels), peers(num_ranks) {
  cudaGetDevice(&device);
  ++live_communicators;
}

ncclComm::~ncclComm() {
  if (background.joinable()) background.join();
  cuda_emulation::AccountDeviceMemory(device, -memory_bytes);
  --live_communicators;
}

bool ncclComm::TakeMemory() {
  const std::int64_t bytes =
      max_channels * cuda_emulation::GlobalNcclOptions().kilobytes_per_channel * 1024;
  if (!cuda_emulation::AccountDeviceMemory(device, bytes)) return false;
  memory_bytes = bytes;
  return true;
}

void ncclComm::Fail(ncclResult_t result, std::string why) {
  std::lock_guard lock(mutex);
  if (state != ncclSuccess && state != ncclInProgress) return;
  last_error = std::move(why);
  state = result;
}

void ncclComm::Refuse(std::string why) {
  std::lock_guard lock(mutex);
  last_error = std::move(why);
}

std::uint64_t ncclComm::NewTicket() {
  std::lock_guard lock(mutex);
  return submitted++;
}

bool ncclComm::AwaitTurn(std::uint64_t ticket) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended == ticket || stopped(); });
  return !stopped();
}

void ncclComm::EndTurn() {
  std::lock_guard lock(mutex);
  ++ended;
  changed.notify_all();
}

void ncclComm::Stop() {
  wake.Raise();
  std::lock_guard lock(mutex);
  changed.notify_all();
}

void ncclComm::AwaitIdle() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended == submitted; });
}

namespace cuda_emulation {

NcclOptions& GlobalNcclOptions() {
  static NcclOptions* const options = [] {
    auto* read = new NcclOptions;
    read->hang_on_peer_death = Says("CUDA_EMULATION_NCCL_PEER_DEATH", "hang");
    read->abort_hangs = Says("CUDA_EMULATION_NCCL_ABORT", "hang");
    read->bytes_per_second = FromEnvironment("CUDA_EMULATION_NCCL_BYTES_PER_SECOND", 0);
    read->delay_us = FromEnvironment("CUDA_EMULATION_NCCL_DELAY_US", 0);
    read->kilobytes_per_channel =
        FromEnvironment("CUDA_EMULATION_NCCL_KB_PER_CTA", read->kilobytes_per_channel);
    return read;
  }();
  return *options;
}

void InjectNcclFault(const char* call, ncclResult_t result, int after, int times) {
  InjectFault({call, static_cast<cudaError_t>(result), after, times});
}

int LiveCommunicators() { return live_communicators; }

namespace nccl {

Entry::Entry(ncclComm* comm) : comm_(comm), ok_(!comm->entered.exchange(true)) {
  if (!ok_) comm->Refuse("two threads are inside NCCL with one communicator");
}

Entry::~Entry() {
  if (ok_) comm_->entered = false;
}

ncclResult_t CheckUsable(ncclComm* comm) {
  if (comm == nullptr) return ncclInvalidArgument;
  if (comm->finalized || comm->stopped()) {
    comm->Refuse("the communicator is finalized, revoked or aborted");
    return ncclInvalidUsage;
  }
  if (comm->async_error() == ncclInProgress) {
    comm->Refuse("the last call is still in progress: poll ncclCommGetAsyncError first");
    return ncclInvalidUsage;
  }
  return comm->async_error();
}

ncclResult_t Fault(const char* call) {
  const auto fault = TakeFault(call);
  return fault ? static_cast<ncclResult_t>(static_cast<int>(*fault)) : ncclSuccess;
}

}  // namespace nccl
}  // namespace cuda_emulation
