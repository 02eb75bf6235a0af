#pragma once
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/metrics.h"
#include "kvtransfer/pool_access.h"
#include "kvtransfer/side_channel.h"
#include "kvtransfer/transfer.h"

namespace baton::kvtransfer {

// What a sender's or receiver's options need when the pools are in device memory.
struct DeviceTransfer {
  std::shared_ptr<PoolAccess> access;           // through pinned memory, for shm and grpc
  std::shared_ptr<SideChannels> side_channels;  // NCCL
};

struct DeviceTransferOptions {
  int max_pairs = 64;    // NCCL pairs open at once
  int max_channels = 2;  // of each pair; one takes about 6 MiB of device memory
  absl::Duration connect_timeout = absl::Seconds(20);
  absl::Duration message_timeout = absl::Seconds(10);  // a peer may let blocks wait for this long
  absl::Duration abort_timeout = absl::Seconds(10);    // then the process ends: see nccl_reaper.h
  absl::Duration idle_timeout = absl::Minutes(5);      // idle pairs are closed
  std::size_t direct_min_bytes = 128 << 10;            // smaller slices go through staging memory
  metrics::Registry* metrics = nullptr;                // may be null; must outlive what is made
  const char* side = "send";                           // or "receive", for the metrics
};

// Requires memory.Fits(fingerprint), with every rank on a device.
//   kFailedPrecondition  this build has no CUDA (kvtransfer/no_cuda)
absl::StatusOr<DeviceTransfer> MakeDeviceTransfer(const ModelFingerprint& fingerprint,
                                                  const KvMemory& memory,
                                                  const DeviceTransferOptions& options);

}  // namespace baton::kvtransfer
