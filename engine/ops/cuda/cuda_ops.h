#pragma once
#include <memory>
#include <optional>
#include <utility>

#include "engine/ops/cuda/activations.h"
#include "engine/ops/cuda/attention_plans.h"
#include "engine/ops/cuda/cuda_backend.h"
#include "engine/ops/cuda/cuda_sampling.h"
#include "engine/ops/cuda/cuda_step.h"
#include "engine/ops/cuda/cuda_weights.h"
#include "engine/ops/cuda/matmul.h"
#include "engine/ops/cuda/nccl_communicator.h"
#include "engine/ops/cuda/rank_link.h"
#include "engine/ops/cuda/rope_tables.h"
#include "engine/ops/cuda/weight_uploader.h"
#include "engine/ops/ops.h"
#include "gpu/device_buffer.h"

namespace baton::engine::cuda {

// The operations on one device: each enqueues its kernels on the step's stream and returns. The
// residual stream x is float; what a matrix product reads is T (__nv_bfloat16 or __half). A step
// computes as many rows as its shape has, filled up ones included, whatever the Matrix says.
// A failed call of CUDA is returned with its name; most such errors end the use of the device.
template <class T>
class CudaOps final : public Ops {
 public:
  // Connects the rank to the others, where there are any.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const CudaOptions& options, CudaRank rank);
  ~CudaOps() override;

  absl::StatusOr<std::unique_ptr<MatrixBuffer>> NewMatrix(int rows, int columns) override;
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout,
                                                    int num_blocks) override;
  absl::StatusOr<std::optional<std::uint64_t>> KvMemoryLeft() const override;
  bool takes_rope_angles() const override { return false; }
  absl::StatusOr<std::unique_ptr<LayerWeights>> LoadLayer(const checkpoint::Checkpoint& checkpoint,
                                                          const ModelPlan& plan,
                                                          int layer) override;
  absl::StatusOr<std::unique_ptr<EdgeWeights>> LoadEdges(const checkpoint::Checkpoint& checkpoint,
                                                         const ModelPlan& plan) override;

  absl::StatusOr<bool> BeginStep(const ModelPlan& plan, const StepInput& input,
                                 KvPool& kv) override;
  absl::Status Embed(const ModelPlan& plan, const EdgeWeights& edges, const RaggedBatch& batch,
                     Matrix x) override;
  absl::Status QkvRopeAppend(const ModelPlan& plan, int layer, const LayerWeights& weights,
                             const RaggedBatch& batch, Matrix x, KvPool& kv, Matrix q) override;
  absl::Status LayerWritten(int layer, const LayerHook& on_layer) override;
  absl::Status PagedAttention(const ModelPlan& plan, int layer, const RaggedBatch& batch, Matrix q,
                              const KvPool& kv, Matrix out) override;
  absl::Status AttentionOutput(const ModelPlan& plan, int layer, const LayerWeights& weights,
                               Matrix attention, Matrix x) override;
  absl::Status Mlp(const ModelPlan& plan, int layer, const LayerWeights& weights,
                   Matrix x) override;
  absl::Status Logits(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                      std::span<const std::int32_t> rows, float* logits) override;
  absl::Status Sample(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                      const StepInput& input) override;
  absl::Status EndStep(const StepInput& input, const LayerHook& on_layer,
                       std::span<SampledToken> tokens) override;
  void AbandonStep() override;

 private:
  CudaOps(const CudaOptions& options, CudaRank rank) : options_(options), rank_(std::move(rank)) {}
  int num_rows() const { return step_->buffers().shape().num_rows; }
  cudaStream_t stream() const { return step_->stream(); }
  // Makes the device current to the calling thread.
  absl::Status Enter() const;
  absl::Status Connect();
  // `on_layer`, but for layers that the device seems to have written because the group has failed.
  LayerHook WhileConnected(const LayerHook& on_layer) const;

  absl::Status Normalize(Matrix x, const gpu::DeviceBuffer& weight, float eps);
  // x += PostNorm(linear * in), the norm being none where `post_norm` is empty.
  absl::Status AddProduct(const DeviceLinear& linear, const void* in,
                          const gpu::DeviceBuffer& post_norm, float eps, Matrix x);
  // Where a product that is added to x is to be put before: null: nowhere, it is added at once.
  float* PartOrNull(const gpu::DeviceBuffer& post_norm) const;
  // x += PostNorm(what was put there, by all ranks).
  absl::Status AddPart(const gpu::DeviceBuffer& post_norm, float eps, Matrix x);
  // x += PostNorm(the mixture of experts of `normed`).
  absl::Status AddExperts(const LayerPlan& shape, const CudaLayer& layer, Matrix x);
  // The first rows of the sampling's logits, of rows `rows` (device memory) of x.
  absl::Status DeviceLogits(const ModelPlan& plan, const CudaEdges& edges, Matrix x,
                            const int* rows, int num_rows);

  const CudaOptions options_;
  const CudaRank rank_;
  std::unique_ptr<CudaStep> step_;
  CudaSampling sampling_;
  std::unique_ptr<Matmul> matmul_;
  Activations activations_;
  RopeTables ropes_;
  AttentionPlans attention_;
  // Rows whose logits the host wants, some at a time.
  gpu::PinnedBuffer host_rows_;
  gpu::DeviceBuffer rows_;
  std::shared_ptr<NcclCommunicator> communicator_;  // null: alone
  RankLink link_;
};

// Whether the kernels take models of this plan.
//   kFailedPrecondition  says what they do not take
absl::Status CheckPlan(const ModelPlan& plan);

}  // namespace baton::engine::cuda
