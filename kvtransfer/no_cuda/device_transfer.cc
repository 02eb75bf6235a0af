#include "kvtransfer/device_transfer.h"

namespace baton::kvtransfer {

absl::StatusOr<DeviceTransfer> MakeDeviceTransfer(const ModelFingerprint&, const KvMemory&,
                                                  const DeviceTransferOptions&) {
  return absl::FailedPreconditionError(
      "KV pools in device memory need a build with CUDA: configure with -DBATON_CUDA=ON");
}

}  // namespace baton::kvtransfer
