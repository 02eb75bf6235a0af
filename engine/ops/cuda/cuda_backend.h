#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/kv/kv_layout.h"
#include "engine/model/model_plan.h"
#include "engine/ops/ops.h"
#include "engine/parallel/communicator.h"
#include "engine/parallel/shard.h"

// The CUDA backend as the rest of the program sees it: no type of CUDA. A build without CUDA links
// engine/ops/no_cuda/cuda_backend.cc instead, where every function says so.
namespace baton::engine {

struct CudaOptions {
  int device = 0;                   // index, as CUDA_VISIBLE_DEVICES leaves them
  KvDType type = KvDType::kF16;     // of activations, weights that are not quantized, and KV
  int max_rows = 512;               // of a step
  int max_sequences = 64;           // of a step, and sampled tokens
  int block_size = 16;              // 16, 32 or 64
  double memory_utilization = 0.9;  // share of the device's memory for everything
  bool graphs = true;               // record steps that only decode, and replay them
  absl::Duration step_timeout = absl::Minutes(1);  // after which a device counts as dead
};

struct CudaDevice {
  std::string name;
  std::string architecture;  // "sm_90"
  std::uint64_t memory_bytes = 0;
};

// What device `index` is.
//   kUnimplemented       a build without CUDA
//   kFailedPrecondition  no driver or no such device on this machine; says what there is
absl::StatusOr<CudaDevice> DescribeCudaDevice(int index);

// The backend on one device, for steps of models like `plan`. Matrix products in T with float sums;
// a step that only decodes is recorded into a CUDA graph at its second occurrence, one graph for
// each number of rows 1, 2, 4, 8, 16, 24, ... and power of two of blocks in the longest table.
// Batch-invariant but for the matrix products, whose kernel depends on the number of rows: see
// RowClass in engine/ops/cuda/matmul.h.
//   errors of DescribeCudaDevice
//   kInvalidArgument    type kF32, another block size, options that are not positive
//   kFailedPrecondition a model of shapes that the kernels do not take; says which
//   kResourceExhausted  no room on the device for activations
absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options, const ModelPlan& plan);

// The communicators of `world_size` ranks, in order, not yet connected.
//   kUnimplemented  a build without CUDA; errors of NCCL
absl::StatusOr<std::vector<std::shared_ptr<Communicator>>> MakeCudaGroup(int world_size);

// One rank of a group on several devices.
struct CudaRank {
  ModelPlan whole;  // the plan of the whole model; ops are called with LocalPlan(whole, shard)
  Shard shard;
  std::shared_ptr<Communicator> communicator;  // the rank's own, of MakeCudaGroup
};

// As MakeCudaOps, of one rank. All ranks call it at the same time, each on its own thread with a
// device of its own, and wait there for each other. Every rank is called the same way; rows of x
// are whole on every rank, q and attention have the rank's heads, logits and sampled tokens are
// rank 0's alone. No step is recorded.
//   kFailedPrecondition  also where a rank's share has a shape that the kernels do not take
//   kDeadlineExceeded    not all ranks came
absl::StatusOr<std::unique_ptr<Ops>> MakeCudaRankOps(const CudaOptions& options, CudaRank rank);

}  // namespace baton::engine
