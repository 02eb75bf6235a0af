#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/model_metadata.h"
#include "common/sliding_window.h"
#include "engine/model/rope.h"

namespace baton::engine {

using checkpoint::Activation;

// What one decoder layer computes, as data; a family differs from another in these fields only.
//   h = x + PostNorm(Wo * Attention(RmsNorm(x)));  x' = h + PostNorm(Mlp(RmsNorm(h)))
// without PostNorm where `post_norms` is false. A linear map has a bias where the checkpoint has
// one for it.
struct LayerPlan {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int intermediate_size = 0;  // of the MLP, or of each expert
  float norm_eps = 1e-5f;
  bool qk_norm = false;  // RMS norm over each head of q and k, before rope
  bool post_norms = false;
  int rope = 0;  // index into ModelPlan::ropes; of a layer that is not rotated: a rope of angle 0
  float attention_scale = 0.0f;    // multiplies q.k
  float attention_softcap = 0.0f;  // then score = cap * tanh(score / cap); 0: none
  int window = 0;  // a row sees itself and the window - 1 positions before it; 0: all before it
  Activation activation = Activation::kSilu;
  // Mixture of experts: the MLP is the sum over the experts_per_token experts of the largest router
  // probabilities (of equals, the lower index), each times its probability, divided by the sum of
  // the chosen where normalize_expert_weights. 0 experts: a plain MLP.
  int num_experts = 0;
  int experts_per_token = 0;
  bool normalize_expert_weights = true;

  // First position that a row at `position` sees.
  int FirstVisible(int position) const { return baton::FirstVisible(window, position); }
};

// A whole model as data: embedding, layers in order, final norm, head.
struct ModelPlan {
  int hidden_size = 0;
  int vocab_size = 0;
  int max_context = 0;
  bool tied_embeddings = false;
  float norm_eps = 1e-5f;
  float norm_offset = 0.0f;      // added to every norm's weight when it is loaded
  float embedding_scale = 1.0f;  // multiplies embeddings
  float logit_softcap = 0.0f;    // logit = cap * tanh(logit / cap); 0: none
  std::vector<Rope> ropes;
  std::vector<LayerPlan> layers;
};

// Makes the plan of a model. `max_context` (0 = the model's own) bounds positions.
//   kFailedPrecondition  a rope scaling or feature this build does not compute; says which
absl::StatusOr<ModelPlan> MakeModelPlan(const checkpoint::ModelMetadata& metadata, int max_context);

}  // namespace baton::engine
