#include "engine/ops/reference/reference_weights.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::engine::reference {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Tensor;

absl::StatusOr<const Tensor*> FindMatrix(const Checkpoint& checkpoint, const std::string& name,
                                         std::int64_t rows, std::int64_t columns) {
  const Tensor* tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor missing: %s, expected [%d, %d]; the model file is incomplete", name,
                        rows, columns));
  }
  if (tensor->rows() != rows || tensor->columns() != columns) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor misshapen: %s is [%d, %d], expected [%d, %d]", name, tensor->rows(),
                        tensor->columns(), rows, columns));
  }
  return tensor;
}

absl::StatusOr<std::vector<float>> ReadVector(const Checkpoint& checkpoint, const std::string& name,
                                              std::int64_t count) {
  BATON_ASSIGN_OR_RETURN(const Tensor* tensor, FindMatrix(checkpoint, name, 1, count));
  std::vector<float> values(count);
  checkpoint::DequantizeRow(tensor->dtype, tensor->data.data(), count, values.data());
  return values;
}

absl::StatusOr<std::vector<float>> ReadNorm(const Checkpoint& checkpoint, const ModelPlan& plan,
                                            const std::string& name, std::int64_t count) {
  BATON_ASSIGN_OR_RETURN(std::vector<float> weight,
                         ReadVector(checkpoint, absl::StrCat(name, ".weight"), count));
  for (float& value : weight) value += plan.norm_offset;
  return weight;
}

// `name` is the canonical name without ".weight".
absl::StatusOr<Linear> FindLinear(const Checkpoint& checkpoint, const std::string& name, int rows,
                                  int columns) {
  Linear linear;
  BATON_ASSIGN_OR_RETURN(linear.weight,
                         FindMatrix(checkpoint, absl::StrCat(name, ".weight"), rows, columns));
  const std::string bias_name = absl::StrCat(name, ".bias");
  if (checkpoint.Find(bias_name) != nullptr) {
    BATON_ASSIGN_OR_RETURN(linear.bias, ReadVector(checkpoint, bias_name, rows));
  }
  return linear;
}

// `prefix` is what the canonical names begin with, ending in a dot.
absl::StatusOr<Mlp> FindMlp(const Checkpoint& checkpoint, const std::string& prefix, int hidden,
                            int intermediate) {
  Mlp mlp;
  BATON_ASSIGN_OR_RETURN(
      mlp.gate, FindLinear(checkpoint, absl::StrCat(prefix, "gate"), intermediate, hidden));
  BATON_ASSIGN_OR_RETURN(mlp.up,
                         FindLinear(checkpoint, absl::StrCat(prefix, "up"), intermediate, hidden));
  BATON_ASSIGN_OR_RETURN(
      mlp.down, FindLinear(checkpoint, absl::StrCat(prefix, "down"), hidden, intermediate));
  return mlp;
}

absl::Status LoadNorms(const Checkpoint& checkpoint, const ModelPlan& plan, const LayerPlan& shape,
                       const std::string& prefix, ReferenceLayer& weights) {
  const auto read = [&](const char* name, int count) {
    return ReadNorm(checkpoint, plan, absl::StrCat(prefix, name), count);
  };
  BATON_ASSIGN_OR_RETURN(weights.attention_norm, read("attention_norm", plan.hidden_size));
  BATON_ASSIGN_OR_RETURN(weights.mlp_norm, read("mlp_norm", plan.hidden_size));
  if (shape.post_norms) {
    BATON_ASSIGN_OR_RETURN(weights.attention_post_norm,
                           read("attention_post_norm", plan.hidden_size));
    BATON_ASSIGN_OR_RETURN(weights.mlp_post_norm, read("mlp_post_norm", plan.hidden_size));
  }
  if (shape.qk_norm) {
    BATON_ASSIGN_OR_RETURN(weights.q_norm, read("q_norm", shape.head_dim));
    BATON_ASSIGN_OR_RETURN(weights.k_norm, read("k_norm", shape.head_dim));
  }
  return absl::OkStatus();
}

absl::Status LoadMlps(const Checkpoint& checkpoint, int hidden, const LayerPlan& shape,
                      const std::string& prefix, ReferenceLayer& weights) {
  if (shape.num_experts == 0) {
    BATON_ASSIGN_OR_RETURN(weights.mlp,
                           FindMlp(checkpoint, prefix, hidden, shape.intermediate_size));
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(weights.router, FindLinear(checkpoint, absl::StrCat(prefix, "router"),
                                                    shape.num_experts, hidden));
  for (int expert = 0; expert < shape.num_experts; ++expert) {
    BATON_ASSIGN_OR_RETURN(
        Mlp mlp, FindMlp(checkpoint, absl::StrCat(prefix, "experts.", expert, "."), hidden,
                         shape.intermediate_size));
    weights.experts.push_back(std::move(mlp));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReferenceLayer> LoadReferenceLayer(const Checkpoint& checkpoint,
                                                  const ModelPlan& plan, int layer) {
  const LayerPlan& shape = plan.layers[layer];
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  const int hidden = plan.hidden_size;
  const int q_columns = shape.num_heads * shape.head_dim;
  const int kv_columns = shape.num_kv_heads * shape.head_dim;
  const auto find = [&](const char* name, int rows, int columns) {
    return FindLinear(checkpoint, absl::StrCat(prefix, name), rows, columns);
  };

  ReferenceLayer weights;
  BATON_RETURN_IF_ERROR(LoadNorms(checkpoint, plan, shape, prefix, weights));
  BATON_ASSIGN_OR_RETURN(weights.q, find("q", q_columns, hidden));
  BATON_ASSIGN_OR_RETURN(weights.k, find("k", kv_columns, hidden));
  BATON_ASSIGN_OR_RETURN(weights.v, find("v", kv_columns, hidden));
  BATON_ASSIGN_OR_RETURN(weights.o, find("o", hidden, q_columns));
  BATON_RETURN_IF_ERROR(LoadMlps(checkpoint, hidden, shape, prefix, weights));
  return weights;
}

absl::StatusOr<ReferenceEdges> LoadReferenceEdges(const Checkpoint& checkpoint,
                                                  const ModelPlan& plan) {
  ReferenceEdges edges;
  BATON_ASSIGN_OR_RETURN(edges.embedding, FindMatrix(checkpoint, "token_embedding.weight",
                                                     plan.vocab_size, plan.hidden_size));
  edges.head = edges.embedding;
  if (!plan.tied_embeddings) {
    BATON_ASSIGN_OR_RETURN(
        edges.head, FindMatrix(checkpoint, "output.weight", plan.vocab_size, plan.hidden_size));
  }
  BATON_ASSIGN_OR_RETURN(edges.norm, ReadNorm(checkpoint, plan, "output_norm", plan.hidden_size));
  return edges;
}

}  // namespace baton::engine::reference
