#include "engine/ops/cuda/attention_plans.h"

#include <algorithm>
#include <cstddef>

#include "common/status.h"
#include "gpu/status.h"

namespace baton::engine::cuda {
namespace {

bool SharePlan(const AttentionShape& a, const AttentionShape& b) {
  return a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads &&
         a.head_dim == b.head_dim && a.window == b.window;
}

}  // namespace

AttentionShape ShapeOf(const LayerPlan& layer) {
  return {.num_heads = layer.num_heads,
          .num_kv_heads = layer.num_kv_heads,
          .head_dim = layer.head_dim,
          .scale = layer.attention_scale,
          .softcap = layer.attention_softcap,
          .window = layer.window};
}

absl::StatusOr<AttentionPlans> AttentionPlans::Create(const ModelPlan& plan,
                                                      const AttentionLimits& limits) {
  AttentionPlans plans;
  plans.limits_ = limits;
  std::size_t workspace = 0;
  for (const LayerPlan& layer : plan.layers) {
    const AttentionShape shape = ShapeOf(layer);
    auto kind = std::find_if(plans.kinds_.begin(), plans.kinds_.end(),
                             [&](const Kind& known) { return SharePlan(known.shape, shape); });
    if (kind == plans.kinds_.end()) {
      BATON_ASSIGN_OR_RETURN(gpu::DeviceBuffer memory,
                             gpu::DeviceBuffer::Create(AttentionPlanBytes(shape, limits)));
      kind = plans.kinds_.insert(plans.kinds_.end(), Kind{shape, std::move(memory)});
      workspace = std::max(workspace, AttentionWorkspaceBytes(shape, limits));
    }
    plans.kind_of_.push_back(static_cast<int>(kind - plans.kinds_.begin()));
  }
  BATON_ASSIGN_OR_RETURN(plans.workspace_, gpu::DeviceBuffer::Create(workspace));
  return plans;
}

absl::Status AttentionPlans::Fill(const DeviceBatch& batch, cudaStream_t stream) const {
  for (const Kind& kind : kinds_) {
    BATON_CUDA_RETURN_IF_ERROR(PlanAttention(batch, kind.shape, limits_, kind.plan.data(), stream));
  }
  return absl::OkStatus();
}

}  // namespace baton::engine::cuda
