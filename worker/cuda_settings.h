#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "engine/kv/kv_layout.h"
#include "engine/ops/cuda/cuda_backend.h"
#include "engine/ops/ops.h"
#include "worker/worker_config.h"

// What the settings mean for backend cuda.
namespace baton::worker {

// The number format of activations and KV: dtype, where auto takes bf16 for models whose embedding
// is bf16, else f16.
//   kInvalidArgument  dtype, kv-dtype or compute ask for what this backend does not compute in
absl::StatusOr<engine::KvDType> ChooseCudaType(const WorkerConfig& config,
                                               const checkpoint::Checkpoint& checkpoint);

// The backend of rank r on device `config.device` + r, for steps of at most `max_rows` rows.
//   errors of MakeCudaRankOps: a build without CUDA, a machine without a device, ...
absl::StatusOr<std::unique_ptr<engine::Ops>> MakeConfiguredCudaOps(const WorkerConfig& config,
                                                                   engine::KvDType type,
                                                                   engine::CudaRank rank,
                                                                   int max_rows);

// For the fingerprint: "cuda bf16 sm_90". Devices of one architecture choose the same kernels.
//   errors of DescribeCudaDevice
absl::StatusOr<std::string> CudaComputeName(const WorkerConfig& config, engine::KvDType type);

}  // namespace baton::worker
