#pragma once
#include <optional>
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

struct ReferenceLayer final : LayerWeights {
  std::vector<float> attention_norm, mlp_norm;
  Linear q, k, v, o;
  Linear gate, up, down;
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
