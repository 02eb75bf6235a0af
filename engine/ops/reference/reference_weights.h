#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "engine/model/model_plan.h"
#include "engine/ops/ops.h"

namespace baton::engine::reference {

// A matrix of the checkpoint, read where it lies, and its bias as floats (empty when it has none).
struct Linear {
  const checkpoint::Tensor* weight = nullptr;
  std::vector<float> bias;
};

// The MLP of a layer, or one expert of it.
struct Mlp {
  Linear gate, up, down;
};

// Norms hold the weight that multiplies, the plan's offset added. What a layer does not have is
// empty.
struct ReferenceLayer final : LayerWeights {
  std::vector<float> attention_norm, mlp_norm;            // [hidden]
  std::vector<float> attention_post_norm, mlp_post_norm;  // [hidden]
  std::vector<float> q_norm, k_norm;                      // [head_dim]
  Linear q, k, v, o;
  Mlp mlp;
  Linear router;
  std::vector<Mlp> experts;
};

struct ReferenceEdges final : EdgeWeights {
  const checkpoint::Tensor* embedding = nullptr;
  const checkpoint::Tensor* head = nullptr;
  std::vector<float> norm;
};

// Find the tensors of a layer, or of the two ends. kInvalidArgument names a tensor that is missing
// or whose shape is not what the plan needs.
absl::StatusOr<ReferenceLayer> LoadReferenceLayer(const checkpoint::Checkpoint& checkpoint,
                                                  const ModelPlan& plan, int layer);
absl::StatusOr<ReferenceEdges> LoadReferenceEdges(const checkpoint::Checkpoint& checkpoint,
                                                  const ModelPlan& plan);

}  // namespace baton::engine::reference
