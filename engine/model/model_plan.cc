#include "engine/model/model_plan.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::engine {
namespace {

using checkpoint::ModelMetadata;

// Index 0 is the rope of all layers but windowed ones that have their own, index 1; the last is
// that of layers that are not rotated.
int RopeOf(const ModelMetadata& metadata, int layer, bool windowed) {
  const bool local = metadata.local_rope.has_value();
  if (!metadata.no_rope_layers.empty() && metadata.no_rope_layers[layer]) return local ? 2 : 1;
  return local && windowed ? 1 : 0;
}

// Turns by no angle: leaves q and k as they are.
Rope NoRotation() {
  Rope rope;
  rope.dim = 2;
  rope.frequencies = {0.0};
  return rope;
}

LayerPlan MakeLayerPlan(const ModelMetadata& metadata, int index, bool windowed) {
  LayerPlan layer;
  layer.num_heads = metadata.num_heads;
  layer.num_kv_heads = metadata.num_kv_heads;
  layer.head_dim = metadata.head_dim;
  layer.intermediate_size =
      metadata.num_experts > 0 ? metadata.expert_intermediate_size : metadata.intermediate_size;
  layer.norm_eps = metadata.rms_norm_eps;
  layer.qk_norm = metadata.qk_norm;
  layer.post_norms = metadata.post_norms;
  layer.rope = RopeOf(metadata, index, windowed);
  layer.attention_scale = metadata.attention_scale > 0
                              ? metadata.attention_scale
                              : static_cast<float>(1.0 / std::sqrt(metadata.head_dim));
  layer.attention_softcap = metadata.attention_softcap;
  layer.window = windowed ? metadata.sliding_window : 0;
  layer.activation = metadata.activation;
  layer.num_experts = metadata.num_experts;
  layer.experts_per_token = metadata.experts_per_token;
  layer.normalize_expert_weights = metadata.normalize_expert_weights;
  return layer;
}

absl::Status CheckExperts(const ModelMetadata& metadata) {
  if (metadata.num_experts == 0) return absl::OkStatus();
  if (metadata.num_experts > 0 && metadata.experts_per_token >= 1 &&
      metadata.experts_per_token <= metadata.num_experts && metadata.expert_intermediate_size > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "experts out of range: %d of %d per token, intermediate size %d", metadata.experts_per_token,
      metadata.num_experts, metadata.expert_intermediate_size));
}

absl::Status CheckRotatedLayers(const ModelMetadata& metadata) {
  const auto listed = static_cast<int>(metadata.no_rope_layers.size());
  if (listed == 0 || listed == metadata.num_layers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "layers without rope do not fit: %d layers listed of %d", listed, metadata.num_layers));
}

absl::Status CheckWindows(const ModelMetadata& metadata) {
  if (metadata.windowed_layers.empty()) return absl::OkStatus();
  if (metadata.sliding_window > 0 &&
      static_cast<int>(metadata.windowed_layers.size()) == metadata.num_layers) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "windowed layers do not fit: window %d, %d layers listed of %d", metadata.sliding_window,
      metadata.windowed_layers.size(), metadata.num_layers));
}

absl::Status CheckSizes(const ModelMetadata& metadata) {
  if (metadata.hidden_size <= 0 || metadata.num_layers <= 0 || metadata.num_heads <= 0 ||
      metadata.num_kv_heads <= 0 || metadata.head_dim <= 0 || metadata.intermediate_size <= 0 ||
      metadata.vocab_size <= 0 || metadata.max_context <= 0) {
    return absl::InvalidArgumentError("model metadata with a size that is not positive");
  }
  if (metadata.num_heads % metadata.num_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("attention heads cannot share KV heads evenly: %d heads, %d KV heads",
                        metadata.num_heads, metadata.num_kv_heads));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelPlan> MakeModelPlan(const ModelMetadata& metadata, int max_context) {
  BATON_RETURN_IF_ERROR(CheckSizes(metadata));
  BATON_RETURN_IF_ERROR(CheckExperts(metadata));
  BATON_RETURN_IF_ERROR(CheckWindows(metadata));
  BATON_RETURN_IF_ERROR(CheckRotatedLayers(metadata));
  if (max_context < 0 || max_context > metadata.max_context) {
    return absl::InvalidArgumentError(
        absl::StrFormat("context out of range: %d, the model allows 1..%d; lower max-model-len",
                        max_context, metadata.max_context));
  }
  ModelPlan plan;
  plan.hidden_size = metadata.hidden_size;
  plan.vocab_size = metadata.vocab_size;
  plan.max_context = max_context == 0 ? metadata.max_context : max_context;
  plan.tied_embeddings = metadata.tied_embeddings;
  plan.norm_eps = metadata.rms_norm_eps;
  plan.norm_offset = metadata.norm_offset;
  plan.embedding_scale = metadata.embedding_scale;
  plan.logit_softcap = metadata.logit_softcap;
  BATON_ASSIGN_OR_RETURN(Rope rope, MakeRope(metadata.rope, metadata.head_dim));
  plan.ropes.push_back(std::move(rope));
  if (metadata.local_rope.has_value()) {
    BATON_ASSIGN_OR_RETURN(Rope local, MakeRope(*metadata.local_rope, metadata.head_dim));
    plan.ropes.push_back(std::move(local));
  }
  if (!metadata.no_rope_layers.empty()) plan.ropes.push_back(NoRotation());
  for (int layer = 0; layer < metadata.num_layers; ++layer) {
    const bool windowed = !metadata.windowed_layers.empty() && metadata.windowed_layers[layer];
    plan.layers.push_back(MakeLayerPlan(metadata, layer, windowed));
  }
  return plan;
}

}  // namespace baton::engine
