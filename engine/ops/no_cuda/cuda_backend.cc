#include "engine/ops/cuda/cuda_backend.h"

#include "absl/status/status.h"

namespace baton::engine {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError(
      "backend cuda is not in this build; build Baton with -DBATON_CUDA=ON (docs/gpu.md), or "
      "choose "
      "another backend");
}

}  // namespace

absl::StatusOr<CudaDevice> DescribeCudaDevice(int /*index*/) { return NoCuda(); }

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& /*options*/,
                                                 const ModelPlan& /*plan*/) {
  return NoCuda();
}

absl::StatusOr<std::vector<std::shared_ptr<Communicator>>> MakeCudaGroup(int /*world_size*/) {
  return NoCuda();
}

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaRankOps(const CudaOptions& /*options*/,
                                                     CudaRank /*rank*/) {
  return NoCuda();
}

}  // namespace baton::engine
