#pragma once
#include <nccl.h>

#include <atomic>
#include <cstdint>

// Test-only controls of the emulated NCCL.
namespace cuda_emulation {

// How transfers behave, for the whole process. Read from the environment at the first use; tests
// may change them at any time.
struct NcclOptions {
  // CUDA_EMULATION_NCCL_PEER_DEATH=error|hang. The network transports notice a dead peer
  // (ncclRemoteError); NVLink and shared memory do not: the operation hangs until it is aborted.
  std::atomic<bool> hang_on_peer_death{false};
  // CUDA_EMULATION_NCCL_BYTES_PER_SECOND: of what one communicator sends. 0: no limit.
  std::atomic<std::int64_t> bytes_per_second{0};
  // CUDA_EMULATION_NCCL_DELAY_US: before the first byte of each message.
  std::atomic<std::int64_t> delay_us{0};
  // CUDA_EMULATION_NCCL_KB_PER_CTA: device memory per channel. The real library takes about 100 MiB
  // for 16 channels, 52 for 8.
  std::atomic<std::int64_t> kilobytes_per_channel{6 << 10};
  // CUDA_EMULATION_NCCL_ABORT=hang: ncclCommAbort and ncclCommRevoke do not return while this is
  // set, as happens when another stuck kernel occupies the device.
  std::atomic<bool> abort_hangs{false};
};
NcclOptions& GlobalNcclOptions();

// The call numbered `after` from now (0: the next) of `call` returns `result` and does nothing.
// ClearFaults() of runtime.h takes it back.
void InjectNcclFault(const char* call, ncclResult_t result, int after = 0, int times = 1);

// Communicators of this process that are neither destroyed nor aborted.
int LiveCommunicators();

}  // namespace cuda_emulation
