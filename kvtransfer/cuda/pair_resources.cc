#include "kvtransfer/cuda/pair_resources.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "gpu/status.h"
#include "kvtransfer/cuda/kernels/copy_pieces.h"

namespace baton::kvtransfer::cuda {
namespace {

// Shorter runs are rare (a head of a block of 16 tokens of 8 elements has 256 bytes).
constexpr std::size_t kShortestRun = 128;

}  // namespace

absl::StatusOr<std::unique_ptr<PairResources>> PairResources::Create(int device,
                                                                     std::size_t message_bytes) {
  auto made = std::make_unique<PairResources>();
  made->device = device;
  BATON_CUDA_RETURN_IF_ERROR(cudaSetDevice(device));
  BATON_ASSIGN_OR_RETURN(made->stream, gpu::Stream::Create());
  BATON_ASSIGN_OR_RETURN(made->staging, gpu::DeviceBuffer::Create(message_bytes));
  made->max_pieces = std::max<std::size_t>(16, message_bytes / kShortestRun);
  const std::size_t list_bytes = made->max_pieces * sizeof(CopyPiece);
  BATON_ASSIGN_OR_RETURN(made->device_pieces, gpu::DeviceBuffer::Create(list_bytes));
  BATON_ASSIGN_OR_RETURN(made->pieces, gpu::PinnedBuffer::Create(kSlots * list_bytes));
  for (gpu::Event& event : made->done) {
    BATON_ASSIGN_OR_RETURN(event, gpu::Event::Create());
  }
  return made;
}

absl::StatusOr<std::unique_ptr<PairResources>> PairResourceCache::Take(int device,
                                                                       std::size_t message_bytes) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = std::find_if(free_.begin(), free_.end(), [&](const auto& one) {
      return one->device == device && one->staging.bytes() == message_bytes;
    });
    if (it != free_.end()) {
      std::unique_ptr<PairResources> found = std::move(*it);
      free_.erase(it);
      return found;
    }
  }
  return PairResources::Create(device, message_bytes);
}

void PairResourceCache::GiveBack(std::unique_ptr<PairResources> resources) {
  absl::MutexLock lock(&mutex_);
  free_.push_back(std::move(resources));
}

}  // namespace baton::kvtransfer::cuda
