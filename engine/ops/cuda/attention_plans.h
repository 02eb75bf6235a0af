#pragma once
#include <cuda_runtime_api.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/model_plan.h"
#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/device_batch.h"
#include "gpu/device_buffer.h"

namespace baton::engine::cuda {

AttentionShape ShapeOf(const LayerPlan& layer);

// What attention needs besides its inputs: a plan of each step for every kind of layer, and one
// workspace.
class AttentionPlans {
 public:
  static absl::StatusOr<AttentionPlans> Create(const ModelPlan& plan,
                                               const AttentionLimits& limits);

  // Enqueues the plans of a step.
  absl::Status Fill(const DeviceBatch& batch, cudaStream_t stream) const;
  const void* plan(int layer) const { return kinds_[kind_of_[layer]].plan.data(); }
  void* workspace() const { return workspace_.data(); }
  const AttentionLimits& limits() const { return limits_; }

 private:
  struct Kind {
    AttentionShape shape{};
    gpu::DeviceBuffer plan;
  };
  AttentionLimits limits_{};
  std::vector<Kind> kinds_;
  std::vector<int> kind_of_;  // by layer
  gpu::DeviceBuffer workspace_;
};

}  // namespace baton::engine::cuda
