#include "engine/ops/reference/reference_weights.h"

#include <cstdint>
#include <string>

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
  BATON_ASSIGN_OR_RETURN(
      weights.attention_norm,
      ReadVector(checkpoint, absl::StrCat(prefix, "attention_norm.weight"), hidden));
  BATON_ASSIGN_OR_RETURN(weights.mlp_norm,
                         ReadVector(checkpoint, absl::StrCat(prefix, "mlp_norm.weight"), hidden));
  BATON_ASSIGN_OR_RETURN(weights.q, find("q", q_columns, hidden));
  BATON_ASSIGN_OR_RETURN(weights.k, find("k", kv_columns, hidden));
  BATON_ASSIGN_OR_RETURN(weights.v, find("v", kv_columns, hidden));
  BATON_ASSIGN_OR_RETURN(weights.o, find("o", hidden, q_columns));
  BATON_ASSIGN_OR_RETURN(weights.gate, find("gate", shape.intermediate_size, hidden));
  BATON_ASSIGN_OR_RETURN(weights.up, find("up", shape.intermediate_size, hidden));
  BATON_ASSIGN_OR_RETURN(weights.down, find("down", hidden, shape.intermediate_size));
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
  BATON_ASSIGN_OR_RETURN(edges.norm,
                         ReadVector(checkpoint, "output_norm.weight", plan.hidden_size));
  return edges;
}

}  // namespace baton::engine::reference
