#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/model_metadata.h"

namespace baton::engine {

// What one decoder layer computes, as data; a family differs from another in these fields only.
struct LayerPlan {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int intermediate_size = 0;
  bool attention_bias = false;
  float attention_scale = 0.0f;  // multiplies q.k
  float norm_eps = 1e-5f;
  int rope_table = 0;  // index into ModelPlan::rope_tables
};

// cos and sin for every position and pair: rotation of pair i at position p by
// p * frequency[i], both tables [max_context][dim / 2], in float computed from double.
struct RopeTable {
  int dim = 0;
  bool interleaved = false;  // pairs (2i, 2i+1) if true, (i, i + dim/2) if not
  std::vector<float> cos;
  std::vector<float> sin;
};

// A whole model as data: embedding, layers in order, final norm, head.
struct ModelPlan {
  int hidden_size = 0;
  int vocab_size = 0;
  int max_context = 0;
  bool tied_embeddings = false;
  float norm_eps = 1e-5f;
  std::vector<RopeTable> rope_tables;
  std::vector<LayerPlan> layers;
};

// Makes the plan of a model. `max_context` (0 = the model's own) bounds positions.
//   kFailedPrecondition  a rope scaling or feature this build does not compute; says which
absl::StatusOr<ModelPlan> MakeModelPlan(const checkpoint::ModelMetadata& metadata, int max_context);

}  // namespace baton::engine
