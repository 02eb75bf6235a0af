#include "engine/ops/cuda/activations.h"

#include <algorithm>

#include "common/status.h"

namespace baton::engine::cuda {
namespace {

// The largest that any layer needs, in elements of a row.
struct Widths {
  std::size_t qkv = 0, gate_up = 0, gated = 0, pairs = 0, experts = 0;
  bool post_norms = false;

  explicit Widths(const ModelPlan& plan) {
    for (const LayerPlan& layer : plan.layers) {
      const std::size_t heads = layer.num_heads + 2 * layer.num_kv_heads;
      const std::size_t copies = std::max(1, layer.experts_per_token);
      const std::size_t inner = copies * layer.intermediate_size;
      qkv = std::max(qkv, heads * layer.head_dim);
      gate_up = std::max(gate_up, 2 * inner);
      gated = std::max(gated, inner);
      if (layer.num_experts > 0) pairs = std::max(pairs, copies);
      experts = std::max<std::size_t>(experts, layer.num_experts);
      post_norms |= layer.post_norms;
    }
  }
};

}  // namespace

absl::StatusOr<Activations> Activations::Create(const ModelPlan& plan, int max_rows,
                                                std::size_t element_bytes) {
  const Widths widths(plan);
  const auto rows = static_cast<std::size_t>(max_rows);
  const std::size_t hidden = plan.hidden_size;
  const std::size_t row_of_t = rows * element_bytes;
  const std::size_t row_of_4 = rows * 4;  // float, int
  Activations made;
  struct Wanted {
    gpu::DeviceBuffer& buffer;
    std::size_t bytes;
  };
  for (const Wanted& wanted :
       {Wanted{made.normed, row_of_t * hidden}, Wanted{made.qkv, row_of_t * widths.qkv},
        Wanted{made.gate_up, row_of_t * widths.gate_up},
        Wanted{made.gated, row_of_t * widths.gated},
        Wanted{made.added, widths.post_norms ? row_of_4 * hidden : 0},
        Wanted{made.router_logits, row_of_4 * widths.experts},
        Wanted{made.expert_out, row_of_t * widths.pairs * hidden},
        Wanted{made.experts, row_of_4 * widths.pairs},
        Wanted{made.weights, row_of_4 * widths.pairs},
        Wanted{made.offsets, widths.experts > 0 ? 4 * (widths.experts + 1) : 0},
        Wanted{made.place_rows, row_of_4 * widths.pairs},
        Wanted{made.place_experts, row_of_4 * widths.pairs},
        Wanted{made.pair_places, row_of_4 * widths.pairs}}) {
    BATON_ASSIGN_OR_RETURN(wanted.buffer, gpu::DeviceBuffer::Create(wanted.bytes));
  }
  return made;
}

}  // namespace baton::engine::cuda
