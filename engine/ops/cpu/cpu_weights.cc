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

// Rows [rows.begin, rows.end) of a matrix, a view of the same bytes.
Tensor SliceRows(const Tensor& tensor, IndexRange rows) {
  Tensor slice = tensor;
  slice.shape = {rows.size(), tensor.columns()};
  slice.data =
      tensor.data.subspan(rows.begin * tensor.row_bytes(), rows.size() * tensor.row_bytes());
  return slice;
}

IndexRange Times(IndexRange range, int factor) {
  return {range.begin * factor, range.end * factor};
}

// Reads the weights of one model, by names without ".weight" and ".bias". Where a matrix is asked
// for with a range of its rows, those alone are read.
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

  absl::Status Matrix(const std::string& name, int rows, int columns, IndexRange own,
                      PackedMatrix& to) {
    BATON_ASSIGN_OR_RETURN(const Tensor* tensor,
                           Find(absl::StrCat(name, ".weight"), rows, columns));
    BATON_ASSIGN_OR_RETURN(to, PackedMatrix::Pack(SliceRows(*tensor, own), pool_, memory_));
    return absl::OkStatus();
  }

  absl::Status Map(const std::string& name, int rows, int columns, IndexRange own, Linear& to) {
    BATON_RETURN_IF_ERROR(Matrix(name, rows, columns, own, to.matrix));
    const std::string bias = absl::StrCat(name, ".bias");
    if (checkpoint_.Find(bias) == nullptr) return absl::OkStatus();
    BATON_RETURN_IF_ERROR(Vector(bias, rows, to.bias));
    to.bias = {to.bias.begin() + own.begin, to.bias.begin() + own.end};
    return absl::OkStatus();
  }

  absl::Status Mlp(const std::string& prefix, int intermediate_size, const CpuLayer& own,
                   MlpWeights& to) {
    const int hidden = plan_.hidden_size;
    const IndexRange columns = own.intermediate_columns;
    BATON_RETURN_IF_ERROR(Map(prefix + "gate", intermediate_size, hidden, columns, to.gate));
    BATON_RETURN_IF_ERROR(Map(prefix + "up", intermediate_size, hidden, columns, to.up));
    return Map(prefix + "down", hidden, intermediate_size, own.hidden_columns, to.down);
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
    return load.Mlp(prefix, shape.intermediate_size, layer, layer.mlps.emplace_back());
  }
  BATON_RETURN_IF_ERROR(
      load.Map(prefix + "router", shape.num_experts, hidden, {0, shape.num_experts}, layer.router));
  layer.mlps.resize(shape.num_experts);
  for (int expert = 0; expert < shape.num_experts; ++expert) {
    BATON_RETURN_IF_ERROR(load.Mlp(absl::StrCat(prefix, "experts.", expert, "."),
                                   shape.intermediate_size, layer, layer.mlps[expert]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuLayer>> LoadCpuLayer(const Checkpoint& checkpoint,
                                                       const ModelPlan& plan, const Shard& shard,
                                                       int layer, ThreadPool& pool,
                                                       WeightMemory& memory) {
  const LayerPlan& shape = plan.layers[layer];
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  const int hidden = plan.hidden_size;
  const int q_rows = shape.num_heads * shape.head_dim;
  const int kv_rows = shape.num_kv_heads * shape.head_dim;
  WeightLoader load(checkpoint, plan, pool, memory);
  const LayerShard& own = shard.layers[layer];
  auto loaded = std::make_unique<CpuLayer>();
  loaded->attention_columns = Times(own.heads, shape.head_dim);
  loaded->intermediate_columns = own.intermediate;
  loaded->hidden_columns = shard.hidden;
  const IndexRange kv_columns = Times(own.kv_heads, shape.head_dim);
  BATON_RETURN_IF_ERROR(LoadNorms(load, prefix, shape, hidden, *loaded));
  BATON_RETURN_IF_ERROR(
      load.Map(prefix + "q", q_rows, hidden, loaded->attention_columns, loaded->q));
  BATON_RETURN_IF_ERROR(load.Map(prefix + "k", kv_rows, hidden, kv_columns, loaded->k));
  BATON_RETURN_IF_ERROR(load.Map(prefix + "v", kv_rows, hidden, kv_columns, loaded->v));
  BATON_RETURN_IF_ERROR(load.Map(prefix + "o", hidden, q_rows, shard.hidden, loaded->o));
  BATON_RETURN_IF_ERROR(LoadMlps(load, prefix, shape, hidden, *loaded));
  return loaded;
}

absl::StatusOr<std::unique_ptr<CpuEdges>> LoadCpuEdges(const Checkpoint& checkpoint,
                                                       const ModelPlan& plan, const Shard& shard,
                                                       ThreadPool& pool, WeightMemory& memory) {
  WeightLoader load(checkpoint, plan, pool, memory);
  auto edges = std::make_unique<CpuEdges>();
  BATON_ASSIGN_OR_RETURN(edges->embedding,
                         load.Find("token_embedding.weight", plan.vocab_size, plan.hidden_size));
  BATON_RETURN_IF_ERROR(load.Norm("output_norm", plan.hidden_size, edges->norm));
  const char* head = plan.tied_embeddings ? "token_embedding" : "output";
  edges->vocab = shard.vocab;
  BATON_RETURN_IF_ERROR(
      load.Matrix(head, plan.vocab_size, plan.hidden_size, shard.vocab, edges->head));
  return edges;
}

}  // namespace baton::engine::cpu
