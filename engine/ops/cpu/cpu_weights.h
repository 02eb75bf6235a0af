#pragma once
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "engine/model/model_plan.h"
#include "engine/ops/cpu/packed_matrix.h"
#include "engine/ops/cpu/weight_memory.h"
#include "engine/ops/ops.h"
#include "engine/parallel/shard.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine::cpu {

// x -> matrix * x + bias
struct Linear {
  PackedMatrix matrix;
  std::vector<float> bias;  // [rows], or empty: none
  // What is added to output columns from `column` on, or null.
  const float* BiasFrom(int column) const { return bias.empty() ? nullptr : bias.data() + column; }
};

// x -> down * (act(gate * x) * (up * x))
struct MlpWeights {
  Linear gate, up, down;
};

// The weights of norms include the plan's norm_offset; those that the plan does not ask for are
// empty.
struct CpuLayer final : LayerWeights {
  std::vector<float> attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;  // [hidden]
  std::vector<float> q_norm, k_norm;                                                // [head_dim]
  Linear q, k, v, o;
  Linear router;                 // with experts
  std::vector<MlpWeights> mlps;  // [num_experts], or one
  // Of a rank's share: which columns of the whole q, attention and intermediate vectors its q, k,
  // v, gate and up make, and which of the hidden vector its o and down.
  IndexRange attention_columns, intermediate_columns, hidden_columns;
};

struct CpuEdges final : EdgeWeights {
  const checkpoint::Tensor* embedding = nullptr;  // in the checkpoint: rows are read one at a time
  std::vector<float> norm;
  PackedMatrix head;
  IndexRange vocab;  // of the whole, that `head` has rows for
};

// Finds the weights of a layer, or of embedding, final norm and head, and packs the rows of their
// matrices that `shard` has on the threads of `pool` into `memory`. `plan` is the whole model's.
//   kInvalidArgument    a weight is missing or misshapen; names it
//   kResourceExhausted  no memory
absl::StatusOr<std::unique_ptr<CpuLayer>> LoadCpuLayer(const checkpoint::Checkpoint& checkpoint,
                                                       const ModelPlan& plan, const Shard& shard,
                                                       int layer, ThreadPool& pool,
                                                       WeightMemory& memory);
absl::StatusOr<std::unique_ptr<CpuEdges>> LoadCpuEdges(const checkpoint::Checkpoint& checkpoint,
                                                       const ModelPlan& plan, const Shard& shard,
                                                       ThreadPool& pool, WeightMemory& memory);

}  // namespace baton::engine::cpu
