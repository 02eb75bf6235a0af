#pragma once
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "engine/model/model_plan.h"
#include "engine/ops/cuda/device_matrix.h"
#include "engine/ops/cuda/weight_uploader.h"
#include "engine/ops/ops.h"
#include "gpu/device_buffer.h"

namespace baton::engine {
struct Shard;  // engine/parallel/shard.h
}  // namespace baton::engine

namespace baton::engine::cuda {

// x -> matrix * x + bias on the device, of one linear map or of several whose outputs lie side by
// side (q, k, v; gate, up). A bias of some of several maps is 0 for the others.
struct DeviceLinear {
  // Stacked along the outputs: one where the formats of all maps agree, else one for each.
  std::vector<DeviceMatrix> parts;
  // Float [rows()], or empty: none. Products add it where asked to; else the kernel that reads
  // their result does, which saves a rounding where that is T.
  gpu::DeviceBuffer bias;
  const float* bias_or_null() const { return bias.as<const float>(); }
  int rows() const;
  int columns() const { return parts.empty() ? 0 : parts.front().columns(); }
  std::size_t bytes() const;
};

// The experts of a layer: for expert e the rows [e * rows_per_expert, (e + 1) * rows_per_expert) of
// one matrix.
struct ExpertLinear {
  DeviceLinear linear;  // one part
  int num_experts = 0;
  int rows_per_expert = 0;
};

// What one rank holds of a layer. Norms are float and include the plan's norm_offset; those that
// the plan does not ask for are empty. With tensor parallelism qkv, gate_up (outputs) and o, down
// (inputs) are this rank's; biases of o and down are on rank 0 alone, because outputs are summed.
struct CudaLayer final : LayerWeights {
  gpu::DeviceBuffer attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;  // [hidden]
  gpu::DeviceBuffer q_norm, k_norm;                                                // [head_dim]
  DeviceLinear qkv;      // outputs: q [heads * head_dim], then k and v [kv_heads * head_dim]
  DeviceLinear o;        // [hidden, heads * head_dim]
  DeviceLinear gate_up;  // without experts; outputs: gate [intermediate], then up
  DeviceLinear down;     // without experts: [hidden, intermediate]
  DeviceLinear router;   // with experts: [num_experts, hidden], on every rank
  ExpertLinear expert_gate_up, expert_down;
};

struct CudaEdges final : EdgeWeights {
  // Rows `vocab` of the embedding and of the head; the same matrix where embeddings are tied. Kept
  // in any format: EmbedRows (kernels/dequantize.h) reads single rows of each.
  std::shared_ptr<const DeviceMatrix> embedding, head;  // [vocab.size(), hidden]
  IndexRange vocab;
  gpu::DeviceBuffer norm;  // float [hidden]
};

// Finds the weights of a layer, or of embedding, final norm and head, and uploads the share of
// `shard`. Nothing points into the checkpoint afterwards.
//   kInvalidArgument    a weight is missing or misshapen, or the shard cuts a group of quantized
//                       weights; names it
//   kResourceExhausted  no device memory
absl::StatusOr<std::unique_ptr<CudaLayer>> LoadCudaLayer(const checkpoint::Checkpoint& checkpoint,
                                                         const ModelPlan& plan, const Shard& shard,
                                                         int layer, WeightUploader& uploader);
absl::StatusOr<std::unique_ptr<CudaEdges>> LoadCudaEdges(const checkpoint::Checkpoint& checkpoint,
                                                         const ModelPlan& plan, const Shard& shard,
                                                         WeightUploader& uploader);

}  // namespace baton::engine::cuda
