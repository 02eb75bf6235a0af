#include "worker/cuda_settings.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/status.h"

namespace baton::worker {

absl::StatusOr<engine::KvDType> ChooseCudaType(const WorkerConfig& config,
                                               const checkpoint::Checkpoint& checkpoint) {
  using engine::KvDType;
  if (config.dtype == "float" || config.dtype == "float32" || config.compute == "f32") {
    return absl::InvalidArgumentError(
        absl::StrFormat("backend cuda computes in bf16 or f16: dtype %s, compute %s; set dtype to "
                        "auto, bfloat16 or "
                        "float16 and leave compute at auto, or choose backend cpu",
                        config.dtype, config.compute));
  }
  const checkpoint::Tensor* embedding = checkpoint.Find("token_embedding.weight");
  const bool stored_bf16 = embedding != nullptr && embedding->dtype == checkpoint::DType::kBF16;
  const bool bf16 = config.dtype == "bfloat16" || (config.dtype == "auto" && stored_bf16);
  const KvDType type = bf16 ? KvDType::kBF16 : KvDType::kF16;
  const std::string name(engine::KvDTypeName(type));
  if (config.kv_dtype != "auto" && config.kv_dtype != name) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "backend cuda keeps KV in the format that it computes in: kv-dtype %s, computing in %s; "
        "set kv-dtype to auto, or dtype to the other format",
        config.kv_dtype, name));
  }
  return type;
}

absl::StatusOr<std::unique_ptr<engine::Ops>> MakeConfiguredCudaOps(const WorkerConfig& config,
                                                                   engine::KvDType type,
                                                                   engine::CudaRank rank,
                                                                   int max_rows) {
  const int index = config.device + rank.shard.rank;
  BATON_ASSIGN_OR_RETURN(const engine::CudaDevice device, engine::DescribeCudaDevice(index));
  log::Info("computing on a GPU", {{"device", index},
                                   {"name", device.name},
                                   {"architecture", device.architecture},
                                   {"memory_bytes", device.memory_bytes}});
  return engine::MakeCudaRankOps({.device = index,
                                  .type = type,
                                  .max_rows = max_rows,
                                  .max_sequences = config.max_num_seqs,
                                  .block_size = config.block_size,
                                  .memory_utilization = config.gpu_memory_utilization},
                                 std::move(rank));
}

absl::StatusOr<std::string> CudaComputeName(const WorkerConfig& config, engine::KvDType type) {
  BATON_ASSIGN_OR_RETURN(const engine::CudaDevice device,
                         engine::DescribeCudaDevice(config.device));
  const std::string_view name = engine::KvDTypeName(type);
  return absl::StrCat("cuda ", absl::string_view(name.data(), name.size()), " ",
                      device.architecture);
}

}  // namespace baton::worker
