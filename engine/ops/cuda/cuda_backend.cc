#include "engine/ops/cuda/cuda_backend.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "engine/ops/cuda/cuda_ops.h"
#include "engine/ops/cuda/nccl_communicator.h"
#include "gpu/status.h"

namespace baton::engine {
namespace {

absl::Status CheckOptions(const CudaOptions& options) {
  if (options.type == KvDType::kF32) {
    return absl::InvalidArgumentError("backend cuda computes in bf16 or f16, not in f32");
  }
  if (options.block_size != 16 && options.block_size != 32 && options.block_size != 64) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "block-size not computed by backend cuda: %d, must be 16, 32 or 64", options.block_size));
  }
  if (options.max_rows <= 0 || options.max_sequences <= 0 ||
      options.max_rows < options.max_sequences || options.memory_utilization <= 0 ||
      options.memory_utilization > 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "options of backend cuda out of range: %d rows, %d sequences, memory utilization %.3f",
        options.max_rows, options.max_sequences, options.memory_utilization));
  }
  return absl::OkStatus();
}

template <class T>
absl::StatusOr<std::unique_ptr<Ops>> Make(const CudaOptions& options, CudaRank rank) {
  BATON_ASSIGN_OR_RETURN(auto ops, cuda::CudaOps<T>::Create(options, std::move(rank)));
  return std::unique_ptr<Ops>(std::move(ops));
}

}  // namespace

absl::StatusOr<CudaDevice> DescribeCudaDevice(int index) {
  int count = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDeviceCount(&count));
  if (index < 0 || index >= count) {
    return absl::FailedPreconditionError(
        absl::StrFormat("no such device: %d, this machine shows %d; set device to one of them, or "
                        "CUDA_VISIBLE_DEVICES",
                        index, count));
  }
  cudaDeviceProp properties{};
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, index));
  return CudaDevice{.name = properties.name,
                    .architecture = absl::StrCat("sm_", properties.major, properties.minor),
                    .memory_bytes = properties.totalGlobalMem};
}

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options,
                                                 const ModelPlan& plan) {
  BATON_ASSIGN_OR_RETURN(Shard everything, MakeShard(plan, /*world_size=*/1, /*rank=*/0));
  return MakeCudaRankOps(options,
                         {.whole = plan, .shard = std::move(everything), .communicator = nullptr});
}

absl::StatusOr<std::vector<std::shared_ptr<Communicator>>> MakeCudaGroup(int world_size) {
  BATON_ASSIGN_OR_RETURN(auto ranks, cuda::NcclCommunicator::MakeGroup({.world_size = world_size}));
  return std::vector<std::shared_ptr<Communicator>>(ranks.begin(), ranks.end());
}

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaRankOps(const CudaOptions& options, CudaRank rank) {
  BATON_RETURN_IF_ERROR(DescribeCudaDevice(options.device).status());
  BATON_RETURN_IF_ERROR(CheckOptions(options));
  BATON_RETURN_IF_ERROR(cuda::CheckPlan(LocalPlan(rank.whole, rank.shard)));
  return options.type == KvDType::kBF16 ? Make<__nv_bfloat16>(options, std::move(rank))
                                        : Make<__half>(options, std::move(rank));
}

}  // namespace baton::engine
