// Access between devices. Memory of every device can be copied to every other, as CUDA allows; that
// a kernel reads only what it has access to is not checked.
#include <cuda_runtime_api.h>

#include <mutex>
#include <set>
#include <utility>

#include "cuda_emulation/options.h"
#include "cuda_emulation/runtime/devices.h"

namespace {

std::mutex peers_mutex;
std::set<std::pair<int, int>>& Enabled() {
  static auto* enabled = new std::set<std::pair<int, int>>;
  return *enabled;
}

bool IsOther(int peer, int device) {
  return peer >= 0 && peer < cuda_emulation::TheOptions().devices && peer != device;
}

}  // namespace

using cuda_emulation::CurrentDevice;
using cuda_emulation::Refuse;

extern "C" {

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  CUDA_EMULATION_ENTER(cudaDeviceCanAccessPeer);
  *can = IsOther(peer, device) ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  CUDA_EMULATION_ENTER(cudaDeviceEnablePeerAccess);
  if (!IsOther(peer, CurrentDevice())) {
    return Refuse(cudaErrorInvalidDevice, "cudaDeviceEnablePeerAccess: no other device");
  }
  const std::lock_guard lock(peers_mutex);
  if (!Enabled().emplace(CurrentDevice(), peer).second) {
    return Refuse(cudaErrorPeerAccessAlreadyEnabled, "cudaDeviceEnablePeerAccess");
  }
  return cudaSuccess;
}

}  // extern "C"
