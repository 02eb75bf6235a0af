#include "engine/ops/cpu/cpu_weights.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::engine::cpu {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Tensor;

// Reads the weights of one model, by names without ".weight" and ".bias".
class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const ModelPlan& plan, ThreadPool& pool,
               WeightMemory& memory)
      : checkpoint_(checkpoint), plan_(plan), pool_(pool), memory_(memory) {}

  absl::Status Norm(const std::string& name, int count, std::vector<float>& to) {
    BATON_RETURN_IF_ERROR(Vector(absl::StrCat(name, ".weight"), count, to));
    for (float& weight : to) weight += plan_.norm_offset;
    return absl::OkStatus();
  }

  absl::Status Matrix(const std::string& name, int rows, int columns, PackedMatrix& to) {
    BATON_ASSIGN_OR_RETURN(const Tensor* tensor,
                           Find(absl::StrCat(name, ".weight"), rows, columns));
    BATON_ASSIGN_OR_RETURN(to, PackedMatrix::Pack(*tensor, pool_, memory_));
    return absl::OkStatus();
  }

  absl::Status Map(const std::string& name, int rows, int columns, Linear& to) {
    BATON_RETURN_IF_ERROR(Matrix(name, rows, columns, to.matrix));
    const std::string bias = absl::StrCat(name, ".bias");
    return checkpoint_.Find(bias) == nullptr ? absl::OkStatus() : Vector(bias, rows, to.bias);
  }

  absl::Status Mlp(const std::string& prefix, int intermediate_size, MlpWeights& to) {
    const int hidden = plan_.hidden_size;
    BATON_RETURN_IF_ERROR(Map(prefix + "gate", intermediate_size, hidden, to.gate));
    BATON_RETURN_IF_ERROR(Map(prefix + "up", intermediate_size, hidden, to.up));
    return Map(prefix + "down", hidden, intermediate_size, to.down);
  }

  absl::StatusOr<const Tensor*> Find(const std::string& name, std::int64_t rows,
                                     std::int64_t columns) {
    const Tensor* tensor = checkpoint_.Find(name);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "weight missing from the checkpoint: %s, expected %d x %d; the model's files are "
          "incomplete",
          name, rows, columns));
    }
    if (tensor->rows() != rows || tensor->columns() != columns) {
      return absl::InvalidArgumentError(absl::StrFormat("shape of %s: %d x %d, expected %d x %d",
                                                        name, tensor->rows(), tensor->columns(),
                                                        rows, columns));
    }
    return tensor;
  }

 private:
  absl::Status Vector(const std::string& name, int count, std::vector<float>& to) {
    BATON_ASSIGN_OR_RETURN(const Tensor* tensor, Find(name, 1, count));
    to.resize(count);
    checkpoint::DequantizeRow(tensor->dtype, tensor->data.data(), count, to.data());
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const ModelPlan& plan_;
  ThreadPool& pool_;
  WeightMemory& memory_;
};

absl::Status LoadNorms(WeightLoader& load, const std::string& prefix, const LayerPlan& shape,
                       int hidden, CpuLayer& layer) {
  BATON_RETURN_IF_ERROR(load.Norm(prefix + "attention_norm", hidden, layer.attention_norm));
  BATON_RETURN_IF_ERROR(load.Norm(prefix + "mlp_norm", hidden, layer.mlp_norm));
  if (shape.post_norms) {
    BATON_RETURN_IF_ERROR(
        load.Norm(prefix + "attention_post_norm", hidden, layer.attention_post_norm));
    BATON_RETURN_IF_ERROR(load.Norm(prefix + "mlp_post_norm", hidden, layer.mlp_post_norm));
  }
  if (shape.qk_norm) {
    BATON_RETURN_IF_ERROR(load.Norm(prefix + "q_norm", shape.head_dim, layer.q_norm));
    BATON_RETURN_IF_ERROR(load.Norm(prefix + "k_norm", shape.head_dim, layer.k_norm));
  }
  return absl::OkStatus();
}

absl::Status LoadMlps(WeightLoader& load, const std::string& prefix, const LayerPlan& shape,
                      int hidden, CpuLayer& layer) {
  if (shape.num_experts == 0) {
    return load.Mlp(prefix, shape.intermediate_size, layer.mlps.emplace_back());
  }
  BATON_RETURN_IF_ERROR(load.Map(prefix + "router", shape.num_experts, hidden, layer.router));
  layer.mlps.resize(shape.num_experts);
  for (int expert = 0; expert < shape.num_experts; ++expert) {
    BATON_RETURN_IF_ERROR(load.Mlp(absl::StrCat(prefix, "experts.", expert, "."),
                                   shape.intermediate_size, layer.mlps[expert]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuLayer>> LoadCpuLayer(const Checkpoint& checkpoint,
                                                       const ModelPlan& plan, int layer,
                                                       ThreadPool& pool, WeightMemory& memory) {
  const LayerPlan& shape = plan.layers[layer];
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  const int hidden = plan.hidden_size;
  const int q_rows = shape.num_heads * shape.head_dim;
  const int kv_rows = shape.num_kv_heads * shape.head_dim;
  WeightLoader load(checkpoint, plan, pool, memory);
  auto loaded = std::make_unique<CpuLayer>();
  BATON_RETURN_IF_ERROR(LoadNorms(load, prefix, shape, hidden, *loaded));
  BATON_RETURN_IF_ERROR(load.Map(prefix + "q", q_rows, hidden, loaded->q));
  BATON_RETURN_IF_ERROR(load.Map(prefix + "k", kv_rows, hidden, loaded->k));
  BATON_RETURN_IF_ERROR(load.Map(prefix + "v", kv_rows, hidden, loaded->v));
  BATON_RETURN_IF_ERROR(load.Map(prefix + "o", hidden, q_rows, loaded->o));
  BATON_RETURN_IF_ERROR(LoadMlps(load, prefix, shape, hidden, *loaded));
  return loaded;
}

absl::StatusOr<std::unique_ptr<CpuEdges>> LoadCpuEdges(const Checkpoint& checkpoint,
                                                       const ModelPlan& plan, ThreadPool& pool,
                                                       WeightMemory& memory) {
  WeightLoader load(checkpoint, plan, pool, memory);
  auto edges = std::make_unique<CpuEdges>();
  BATON_ASSIGN_OR_RETURN(edges->embedding,
                         load.Find("token_embedding.weight", plan.vocab_size, plan.hidden_size));
  BATON_RETURN_IF_ERROR(load.Norm("output_norm", plan.hidden_size, edges->norm));
  const char* head = plan.tied_embeddings ? "token_embedding" : "output";
  BATON_RETURN_IF_ERROR(load.Matrix(head, plan.vocab_size, plan.hidden_size, edges->head));
  return edges;
}

}  // namespace baton::engine::cpu
