#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor_parallel.h"
#include "engine/model/model_plan.h"
#include "engine/ops/cuda/kernels/add.h"
#include "engine/parallel/communicator.h"
#include "engine/parallel/shard.h"
#include "gpu/device_buffer.h"

namespace baton::engine::cuda {

// Up to this many bytes of a rank, partial sums are gathered by all and added in rank order by
// every rank itself, in the kernel that adds to the residual stream; above, NCCL adds. A decode
// step's sums are bound by latency, and one exchange has half of that of a reduce-scatter and an
// all-gather.
inline constexpr std::size_t kOneShotBytes = std::size_t{256} << 10;

struct RankLinkOptions {
  int max_rows = 0;
  int max_samples = 0;
  std::size_t one_shot_bytes = kOneShotBytes;
};

// What one rank of a group exchanges with the others. All enqueues on the stream that the
// communicator was connected with; all ranks make the same calls with the same numbers of rows. A
// rank alone has no memory here and needs no call but alone(), first() and status().
// Not thread-safe.
class RankLink {
 public:
  RankLink() = default;  // alone
  // `communicator`: the rank's own, which must outlive this.
  //   errors of MakeShard; kResourceExhausted: no device memory
  static absl::StatusOr<RankLink> Create(const ModelPlan& whole, int rank, int world_size,
                                         Communicator* communicator,
                                         const RankLinkOptions& options);

  bool alone() const { return world_size_ == 1; }
  bool first() const { return rank_ == 0; }

  // Where this rank's part of a sum is to be put: [num_rows, hidden] float, 16-byte aligned.
  float* Part(int num_rows) const;
  // x += norm(sum of all ranks' parts): `addition` says the norm, of which every rank has the same.
  //   x: [num_rows, hidden]
  absl::Status AddParts(Addition addition, int num_rows, float* x, cudaStream_t stream);
  // x = the sum of all ranks' x, of which all but one are 0 in each row, so that nothing is
  // rounded.
  absl::Status SumRows(int num_rows, float* x);

  // Where this rank's logits are to be put: [num_rows, logits_stride()] float, 16-byte aligned, of
  // which the first Shard::vocab.size() columns count.
  float* OwnLogits(int num_rows) const;
  int logits_stride() const { return logits_stride_; }
  // On rank 0: logits = those of all ranks side by side.   logits: [num_rows, vocab] float
  absl::Status GatherLogits(int num_rows, float* logits, cudaStream_t stream);

  // To be asked after every wait for the stream, see Communicator. OK for a rank alone.
  absl::Status status() const;

 private:
  bool OneShot(int num_rows) const;
  std::size_t Count(int num_rows) const { return static_cast<std::size_t>(num_rows) * hidden_; }

  int rank_ = 0;
  int world_size_ = 1;
  int hidden_ = 0;
  int vocab_size_ = 0;
  int logits_stride_ = 0;
  std::size_t one_shot_bytes_ = 0;
  std::vector<IndexRange> vocab_;  // by rank
  Communicator* communicator_ = nullptr;
  gpu::DeviceBuffer parts_;   // [world_size, rows, hidden], or of many rows this rank's alone
  gpu::DeviceBuffer logits_;  // [world_size, rows, logits_stride]
};

}  // namespace baton::engine::cuda
