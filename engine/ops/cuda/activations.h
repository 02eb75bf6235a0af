#pragma once
#include <cstddef>

#include "absl/status/statusor.h"
#include "engine/model/model_plan.h"
#include "engine/ops/cuda/kernels/experts.h"
#include "gpu/device_buffer.h"

namespace baton::engine::cuda {

// What lives between the kernels of one op; elements of T take `element_bytes`. Sized for the
// widest layer, and so used by all.
struct Activations {
  gpu::DeviceBuffer normed;   // T [max_rows, hidden]
  gpu::DeviceBuffer qkv;      // T [max_rows, (num_heads + 2 * num_kv_heads) * head_dim]
  gpu::DeviceBuffer gate_up;  // T [max_rows * experts_per_token, 2 * intermediate]
  gpu::DeviceBuffer gated;    // T [max_rows * experts_per_token, intermediate]
  gpu::DeviceBuffer added;    // float [max_rows, hidden], where a norm comes before the sum
  // Of mixtures of experts.
  gpu::DeviceBuffer router_logits;              // float [max_rows, num_experts]
  gpu::DeviceBuffer expert_out;                 // T [max_rows * experts_per_token, hidden]
  gpu::DeviceBuffer experts, weights;           // [max_rows, experts_per_token]
  gpu::DeviceBuffer offsets;                    // [num_experts + 1]
  gpu::DeviceBuffer place_rows, place_experts;  // [max_rows * experts_per_token]
  gpu::DeviceBuffer pair_places;                // [max_rows, experts_per_token]

  // kResourceExhausted when the device has no room.
  static absl::StatusOr<Activations> Create(const ModelPlan& plan, int max_rows,
                                            std::size_t element_bytes);
  ExpertChoice choice() const { return {experts.as<int>(), weights.as<float>()}; }
  ExpertGroups groups() const {
    return {offsets.as<int>(), place_rows.as<int>(), place_experts.as<int>(),
            pair_places.as<int>()};
  }
};

}  // namespace baton::engine::cuda
