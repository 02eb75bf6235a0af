#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "engine/ops/cpu/aligned_buffer.h"
#include "engine/ops/cpu/attention.h"
#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/matmul.h"
#include "engine/ops/cpu/packed_matrix.h"
#include "engine/ops/ops.h"
#include "engine/threads/thread_pool.h"

namespace baton::engine {
namespace cpu {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Tensor;

class FloatMatrix : public MatrixBuffer {
 public:
  FloatMatrix(int rows, int columns)
      : rows_(rows), columns_(columns), data_(static_cast<std::size_t>(rows) * columns) {
    std::fill_n(data_.data(), static_cast<std::size_t>(rows) * columns, 0.0f);
  }
  Matrix matrix() const override { return {data_.data(), rows_, columns_}; }

 private:
  int rows_, columns_;
  AlignedBuffer<float> data_;
};

struct CpuLayer : LayerWeights {
  std::vector<float> attention_norm, mlp_norm;
  PackedMatrix q, k, v, o, gate, up, down;
  std::vector<float> q_bias, k_bias, v_bias, o_bias;  // empty: none
};

struct CpuEdges : EdgeWeights {
  const Tensor* embedding = nullptr;  // in the checkpoint: rows are read one at a time
  std::vector<float> norm;
  PackedMatrix head;
};

absl::StatusOr<const Tensor*> FindTensor(const Checkpoint& checkpoint, const std::string& name) {
  const Tensor* tensor = checkpoint.Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("weight missing from the checkpoint: ", name));
  }
  return tensor;
}

absl::StatusOr<std::vector<float>> LoadVector(const Checkpoint& checkpoint,
                                              const std::string& name) {
  BATON_ASSIGN_OR_RETURN(const Tensor* tensor, FindTensor(checkpoint, name));
  std::vector<float> values(tensor->rows() * tensor->columns());
  checkpoint::DequantizeRow(tensor->dtype, tensor->data.data(),
                            static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

void AddBias(const std::vector<float>& bias, int column, int num_columns, float* out) {
  if (bias.empty()) return;
  for (int i = 0; i < num_columns; ++i) out[i] += bias[column + i];
}

// Rotates one head in place by its row's angles.
void Rotate(const Rope& rope, const float* cos, const float* sin, float* head) {
  const int pairs = rope.dim / 2;
  const int step = rope.interleaved ? 2 : 1;
  float* first = head;
  float* second = rope.interleaved ? head + 1 : head + pairs;
  for (int i = 0; i < pairs; ++i, first += step, second += step) {
    const float a = *first;
    const float b = *second;
    *first = a * cos[i] - b * sin[i];
    *second = b * cos[i] + a * sin[i];
  }
}

class CpuOps : public Ops {
 public:
  explicit CpuOps(const OpsOptions& options)
      : fast_(options.compute == ComputeMode::kFast),
        pool_({.num_threads = options.num_threads,
               .nice = options.nice,
               .batch = options.batch_scheduling,
               .spin = options.spin}),
        attention_(pool_) {}

  std::unique_ptr<MatrixBuffer> NewMatrix(int rows, int columns) override {
    return std::make_unique<FloatMatrix>(rows, columns);
  }

  absl::StatusOr<std::unique_ptr<LayerWeights>> LoadLayer(const Checkpoint& checkpoint,
                                                          const ModelPlan& plan,
                                                          int layer) override;
  absl::StatusOr<std::unique_ptr<EdgeWeights>> LoadEdges(const Checkpoint& checkpoint,
                                                         const ModelPlan& plan) override;
  absl::Status Embed(const ModelPlan& plan, const EdgeWeights& edges, const RaggedBatch& batch,
                     Matrix x) override;
  absl::Status QkvRopeAppend(const ModelPlan& plan, int layer, const LayerWeights& weights,
                             const RaggedBatch& batch, Matrix x, KvPool& kv, Matrix q) override;
  absl::Status PagedAttention(const ModelPlan& plan, int layer, const RaggedBatch& batch, Matrix q,
                              const KvPool& kv, Matrix out) override;
  absl::Status AttentionOutput(const ModelPlan& plan, int layer, const LayerWeights& weights,
                               Matrix attention, Matrix x) override;
  absl::Status Mlp(const ModelPlan& plan, int layer, const LayerWeights& weights,
                   Matrix x) override;
  absl::Status Logits(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                      std::span<const std::int32_t> rows, float* logits) override;

 private:
  // Whether `matrix` wants its activations quantized.
  bool Quantizes(const PackedMatrix& matrix) const {
    return fast_ && TraitsOf(matrix.format()).is_integer;
  }
  // Runs fn(row, thread) for every row, several rows an index.
  template <class Function>
  void ForRows(int num_rows, const Function& fn);
  absl::StatusOr<PackedMatrix> LoadMatrix(const Checkpoint& checkpoint, const std::string& name,
                                          int rows, int columns);
  // RmsNorm of rows rows[i] (or i, where `rows` is empty) of x in the forms `parts` want.
  Activations Normalize(Matrix x, std::span<const std::int32_t> rows, int num_rows,
                        const std::vector<float>& weight, float eps,
                        std::span<const PackedMatrix* const> parts);
  // Rows of floats as they are, also quantized where `matrix` wants it.
  Activations Prepare(const float* x, int num_rows, int columns, const PackedMatrix& matrix);
  Activations GateUp(const CpuLayer& layer, const Activations& x);
  void AppendKv(const KvLayout& layout, const LayerPlan& plan, const Rope& rope,
                const RopeAngles& angles, int layer, const BatchSequence& sequence, int row,
                KvPool& kv, float* q);
  static absl::Status CheckShape(const char* what, Matrix matrix, int rows, int columns);

  const bool fast_;
  ThreadPool pool_;
  WeightMemory weight_memory_;
  Attention attention_;
  AlignedBuffer<float> floats_;              // normalized rows
  AlignedBuffer<QuantizedGroup> quantized_;  // inputs of the next product
  AlignedBuffer<float> key_values_;          // [num_rows, 2 * num_kv_heads * head_dim]
  AlignedBuffer<float> hidden_;              // of the MLP, where its down matrix wants floats
  AlignedBuffer<QuantizedGroup> quantized_hidden_;
};

template <class Function>
void CpuOps::ForRows(int num_rows, const Function& fn) {
  constexpr int kRowsPerIndex = 8;
  pool_.ParallelFor((num_rows + kRowsPerIndex - 1) / kRowsPerIndex, [&](int index, int thread) {
    const int end = std::min(num_rows, (index + 1) * kRowsPerIndex);
    for (int row = index * kRowsPerIndex; row < end; ++row) fn(row, thread);
  });
}

absl::Status CpuOps::CheckShape(const char* what, Matrix matrix, int rows, int columns) {
  if (matrix.rows >= rows && matrix.columns == columns && matrix.data != nullptr) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat("shape of %s: %d x %d, expected %d x %d", what,
                                                    matrix.rows, matrix.columns, rows, columns));
}

absl::StatusOr<PackedMatrix> CpuOps::LoadMatrix(const Checkpoint& checkpoint,
                                                const std::string& name, int rows, int columns) {
  BATON_ASSIGN_OR_RETURN(const Tensor* tensor, FindTensor(checkpoint, name));
  if (tensor->rows() != rows || tensor->columns() != columns) {
    return absl::InvalidArgumentError(absl::StrFormat("shape of %s: %d x %d, expected %d x %d",
                                                      name, tensor->rows(), tensor->columns(), rows,
                                                      columns));
  }
  return PackedMatrix::Pack(*tensor, pool_, weight_memory_);
}

absl::StatusOr<std::unique_ptr<LayerWeights>> CpuOps::LoadLayer(const Checkpoint& checkpoint,
                                                                const ModelPlan& plan, int layer) {
  const LayerPlan& shape = plan.layers[layer];
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  const int hidden = plan.hidden_size;
  const int q_rows = shape.num_heads * shape.head_dim;
  const int kv_rows = shape.num_kv_heads * shape.head_dim;
  auto loaded = std::make_unique<CpuLayer>();
  const auto vector = [&](const char* name, std::vector<float>& to) -> absl::Status {
    BATON_ASSIGN_OR_RETURN(to, LoadVector(checkpoint, prefix + name));
    return absl::OkStatus();
  };
  const auto matrix = [&](const char* name, int rows, int columns,
                          PackedMatrix& to) -> absl::Status {
    BATON_ASSIGN_OR_RETURN(to, LoadMatrix(checkpoint, prefix + name, rows, columns));
    return absl::OkStatus();
  };
  BATON_RETURN_IF_ERROR(vector("attention_norm.weight", loaded->attention_norm));
  BATON_RETURN_IF_ERROR(vector("mlp_norm.weight", loaded->mlp_norm));
  BATON_RETURN_IF_ERROR(matrix("q.weight", q_rows, hidden, loaded->q));
  BATON_RETURN_IF_ERROR(matrix("k.weight", kv_rows, hidden, loaded->k));
  BATON_RETURN_IF_ERROR(matrix("v.weight", kv_rows, hidden, loaded->v));
  BATON_RETURN_IF_ERROR(matrix("o.weight", hidden, q_rows, loaded->o));
  BATON_RETURN_IF_ERROR(matrix("gate.weight", shape.intermediate_size, hidden, loaded->gate));
  BATON_RETURN_IF_ERROR(matrix("up.weight", shape.intermediate_size, hidden, loaded->up));
  BATON_RETURN_IF_ERROR(matrix("down.weight", hidden, shape.intermediate_size, loaded->down));
  const auto bias = [&](const char* name, std::vector<float>& to) -> absl::Status {
    return checkpoint.Find(prefix + name) == nullptr ? absl::OkStatus() : vector(name, to);
  };
  BATON_RETURN_IF_ERROR(bias("q.bias", loaded->q_bias));
  BATON_RETURN_IF_ERROR(bias("k.bias", loaded->k_bias));
  BATON_RETURN_IF_ERROR(bias("v.bias", loaded->v_bias));
  BATON_RETURN_IF_ERROR(bias("o.bias", loaded->o_bias));
  return loaded;
}

absl::StatusOr<std::unique_ptr<EdgeWeights>> CpuOps::LoadEdges(const Checkpoint& checkpoint,
                                                               const ModelPlan& plan) {
  auto edges = std::make_unique<CpuEdges>();
  BATON_ASSIGN_OR_RETURN(edges->embedding, FindTensor(checkpoint, "token_embedding.weight"));
  BATON_ASSIGN_OR_RETURN(edges->norm, LoadVector(checkpoint, "output_norm.weight"));
  const char* head = plan.tied_embeddings ? "token_embedding.weight" : "output.weight";
  BATON_ASSIGN_OR_RETURN(edges->head,
                         LoadMatrix(checkpoint, head, plan.vocab_size, plan.hidden_size));
  return edges;
}

absl::Status CpuOps::Embed(const ModelPlan& /*plan*/, const EdgeWeights& edges,
                           const RaggedBatch& batch, Matrix x) {
  const Tensor& embedding = *static_cast<const CpuEdges&>(edges).embedding;
  BATON_RETURN_IF_ERROR(CheckShape("x", x, batch.num_rows(), embedding.columns()));
  for (const std::int32_t token : batch.tokens) {
    if (token < 0 || token >= embedding.rows()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("token id out of range: %d, vocabulary %d", token, embedding.rows()));
    }
  }
  ForRows(batch.num_rows(), [&](int row, int) {
    const std::byte* from = embedding.data.data() + batch.tokens[row] * embedding.row_bytes();
    checkpoint::DequantizeRow(embedding.dtype, from, embedding.columns(),
                              x.f32() + static_cast<std::size_t>(row) * x.columns);
  });
  return absl::OkStatus();
}

Activations CpuOps::Normalize(Matrix x, std::span<const std::int32_t> rows, int num_rows,
                              const std::vector<float>& weight, float eps,
                              std::span<const PackedMatrix* const> parts) {
  bool quantize = false;
  for (const PackedMatrix* part : parts) quantize |= Quantizes(*part);
  const std::size_t columns = x.columns;
  Activations result{.stride = columns, .groups = columns / kGroup, .num_rows = num_rows};
  float* floats = floats_.Reserve(num_rows * columns);
  result.floats = floats;
  QuantizedGroup* groups = nullptr;
  if (quantize) result.quantized = groups = quantized_.Reserve(num_rows * result.groups);
  ForRows(num_rows, [&](int row, int) {
    const std::size_t from = rows.empty() ? row : rows[row];
    float* to = floats + row * columns;
    RmsNormRow(x.f32() + from * columns, weight.data(), eps, x.columns, to);
    if (quantize) QuantizeRow(to, x.columns, groups + row * result.groups);
  });
  return result;
}

Activations CpuOps::Prepare(const float* x, int num_rows, int columns, const PackedMatrix& matrix) {
  Activations result{.floats = x,
                     .stride = static_cast<std::size_t>(columns),
                     .groups = static_cast<std::size_t>(columns) / kGroup,
                     .num_rows = num_rows};
  if (!Quantizes(matrix)) return result;
  QuantizedGroup* groups = quantized_.Reserve(num_rows * result.groups);
  result.quantized = groups;
  ForRows(num_rows, [&](int row, int) {
    QuantizeRow(x + static_cast<std::size_t>(row) * columns, columns, groups + row * result.groups);
  });
  return result;
}

absl::Status CpuOps::QkvRopeAppend(const ModelPlan& plan, int layer, const LayerWeights& weights,
                                   const RaggedBatch& batch, Matrix x, KvPool& kv, Matrix q) {
  const auto& own = static_cast<const CpuLayer&>(weights);
  const LayerPlan& shape = plan.layers[layer];
  const int num_rows = batch.num_rows();
  BATON_RETURN_IF_ERROR(CheckShape("x", x, num_rows, plan.hidden_size));
  BATON_RETURN_IF_ERROR(CheckShape("q", q, num_rows, shape.num_heads * shape.head_dim));
  const PackedMatrix* parts[] = {&own.q, &own.k, &own.v};
  const std::vector<float>* biases[] = {&own.q_bias, &own.k_bias, &own.v_bias};
  const Activations n = Normalize(x, {}, num_rows, own.attention_norm, shape.norm_eps, parts);
  const int kv_columns = shape.num_kv_heads * shape.head_dim;
  float* key_values = key_values_.Reserve(static_cast<std::size_t>(num_rows) * 2 * kv_columns);
  MatMul(pool_, n, parts,
         [&](int part, int column, int num_columns, int first_row, int rows, const float* block) {
           const std::size_t stride = part == 0 ? q.columns : 2 * kv_columns;
           float* to = part == 0 ? q.f32() : key_values + (part - 1) * kv_columns;
           to += first_row * stride + column;
           for (int row = 0; row < rows; ++row, to += stride, block += kTileRows) {
             std::copy(block, block + num_columns, to);
             AddBias(*biases[part], column, num_columns, to);
           }
         });
  const Rope& rope = plan.ropes[shape.rope];
  const RopeAngles& angles = batch.angles[shape.rope];
  for (const BatchSequence& sequence : batch.sequences) {
    ForRows(sequence.num_rows, [&](int row, int) {
      AppendKv(kv.layout(), shape, rope, angles, layer, sequence, row, kv,
               q.f32() + static_cast<std::size_t>(sequence.first_row + row) * q.columns);
    });
  }
  return absl::OkStatus();
}

// Rotates q and k of one row and writes k and v to the row's slot.
void CpuOps::AppendKv(const KvLayout& layout, const LayerPlan& plan, const Rope& rope,
                      const RopeAngles& angles, int layer, const BatchSequence& sequence, int row,
                      KvPool& kv, float* q) {
  const int position = sequence.start_position + row;
  const int head_dim = plan.head_dim;
  const std::size_t first_angle =
      static_cast<std::size_t>(sequence.first_row + row) * (rope.dim / 2);
  const float* cos = angles.cos + first_angle;
  const float* sin = angles.sin + first_angle;
  for (int h = 0; h < plan.num_heads; ++h) Rotate(rope, cos, sin, q + h * head_dim);
  const int kv_columns = plan.num_kv_heads * head_dim;
  float* k =
      key_values_.data() + static_cast<std::size_t>(sequence.first_row + row) * 2 * kv_columns;
  std::byte* block = kv.Block(layer, sequence.block_table[position / layout.block_size]).data();
  for (int h = 0; h < plan.num_kv_heads; ++h) {
    float* key = k + h * head_dim;
    const float* value = key + kv_columns;
    Rotate(rope, cos, sin, key);
    std::byte* to =
        block + (static_cast<std::size_t>(h) * layout.block_size + position % layout.block_size) *
                    head_dim * layout.element_bytes();
    std::byte* value_to = to + layout.half_block_bytes();
    if (layout.dtype == KvDType::kF16) {
      FloatsToHalves(key, head_dim, reinterpret_cast<std::uint16_t*>(to));
      FloatsToHalves(value, head_dim, reinterpret_cast<std::uint16_t*>(value_to));
    } else {
      std::memcpy(to, key, head_dim * sizeof(float));
      std::memcpy(value_to, value, head_dim * sizeof(float));
    }
  }
}

absl::Status CpuOps::PagedAttention(const ModelPlan& plan, int layer, const RaggedBatch& batch,
                                    Matrix q, const KvPool& kv, Matrix out) {
  const LayerPlan& shape = plan.layers[layer];
  const int columns = shape.num_heads * shape.head_dim;
  BATON_RETURN_IF_ERROR(CheckShape("q", q, batch.num_rows(), columns));
  BATON_RETURN_IF_ERROR(CheckShape("attention", out, batch.num_rows(), columns));
  attention_.Run(shape, layer, batch, q.f32(), kv, out.f32());
  return absl::OkStatus();
}

absl::Status CpuOps::AttentionOutput(const ModelPlan& plan, int layer, const LayerWeights& weights,
                                     Matrix attention, Matrix x) {
  const auto& own = static_cast<const CpuLayer&>(weights);
  BATON_RETURN_IF_ERROR(CheckShape("attention", attention, x.rows, own.o.columns()));
  BATON_RETURN_IF_ERROR(CheckShape("x", x, x.rows, plan.hidden_size));
  const PackedMatrix* parts[] = {&own.o};
  const Activations a = Prepare(attention.f32(), x.rows, attention.columns, own.o);
  (void)layer;
  MatMul(pool_, a, parts,
         [&](int, int column, int num_columns, int first_row, int rows, const float* block) {
           float* to = x.f32() + static_cast<std::size_t>(first_row) * x.columns + column;
           for (int row = 0; row < rows; ++row, to += x.columns, block += kTileRows) {
             for (int i = 0; i < num_columns; ++i) to[i] += block[i];
             AddBias(own.o_bias, column, num_columns, to);
           }
         });
  return absl::OkStatus();
}

// silu(gate) * up in the form the down matrix wants. A task owns 32 columns, one group.
Activations CpuOps::GateUp(const CpuLayer& layer, const Activations& x) {
  const int columns = layer.gate.rows();
  const bool quantize = Quantizes(layer.down);
  Activations result{.stride = static_cast<std::size_t>(columns),
                     .groups = static_cast<std::size_t>(columns) / kGroup,
                     .num_rows = x.num_rows};
  float* floats = nullptr;
  QuantizedGroup* groups = nullptr;
  if (quantize) {
    result.quantized = groups = quantized_hidden_.Reserve(x.num_rows * result.groups);
  } else {
    result.floats = floats = hidden_.Reserve(x.num_rows * result.stride);
  }
  const int num_tiles = layer.gate.num_tiles();
  const int row_blocks = (x.num_rows + kRowBlock - 1) / kRowBlock;
  pool_.ParallelFor((num_tiles + 1) / 2 * row_blocks, [&](int task, int) {
    alignas(64) float gate[2][kRowBlock * kTileRows];
    alignas(64) float up[2][kRowBlock * kTileRows];
    const int first_row = task % row_blocks * kRowBlock;
    const int num_rows = std::min(kRowBlock, x.num_rows - first_row);
    const int first_tile = task / row_blocks * 2;
    const int tiles = std::min(2, num_tiles - first_tile);
    for (int t = 0; t < tiles; ++t) {
      ComputeTile(layer.gate, first_tile + t, x, first_row, num_rows, gate[t]);
      ComputeTile(layer.up, first_tile + t, x, first_row, num_rows, up[t]);
    }
    const int first_column = first_tile * kTileRows;
    const int num_columns = std::min(kGroup, columns - first_column);
    for (int row = 0; row < num_rows; ++row) {
      alignas(64) float h[kGroup];
      for (int t = 0; t < tiles; ++t) {
        SwiGlu(gate[t] + row * kTileRows, up[t] + row * kTileRows, kTileRows, h + t * kTileRows);
      }
      if (quantize) {
        QuantizeRow(h, kGroup, groups + (first_row + row) * result.groups + first_column / kGroup);
      } else {
        std::copy(h, h + num_columns, floats + (first_row + row) * result.stride + first_column);
      }
    }
  });
  return result;
}

absl::Status CpuOps::Mlp(const ModelPlan& plan, int layer, const LayerWeights& weights, Matrix x) {
  const auto& own = static_cast<const CpuLayer&>(weights);
  BATON_RETURN_IF_ERROR(CheckShape("x", x, x.rows, plan.hidden_size));
  const PackedMatrix* inputs[] = {&own.gate, &own.up};
  const Activations n = Normalize(x, {}, x.rows, own.mlp_norm, plan.layers[layer].norm_eps, inputs);
  const Activations h = GateUp(own, n);
  const PackedMatrix* parts[] = {&own.down};
  MatMul(pool_, h, parts,
         [&](int, int column, int num_columns, int first_row, int rows, const float* block) {
           float* to = x.f32() + static_cast<std::size_t>(first_row) * x.columns + column;
           for (int row = 0; row < rows; ++row, to += x.columns, block += kTileRows) {
             for (int i = 0; i < num_columns; ++i) to[i] += block[i];
           }
         });
  return absl::OkStatus();
}

absl::Status CpuOps::Logits(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                            std::span<const std::int32_t> rows, float* logits) {
  const auto& own = static_cast<const CpuEdges&>(edges);
  if (rows.empty()) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(
      CheckShape("x", x, *std::max_element(rows.begin(), rows.end()) + 1, plan.hidden_size));
  const PackedMatrix* parts[] = {&own.head};
  const Activations n =
      Normalize(x, rows, static_cast<int>(rows.size()), own.norm, plan.norm_eps, parts);
  const std::size_t stride = plan.vocab_size;
  MatMul(pool_, n, parts,
         [&](int, int column, int num_columns, int first_row, int num_rows, const float* block) {
           float* to = logits + first_row * stride + column;
           for (int row = 0; row < num_rows; ++row, to += stride, block += kTileRows) {
             std::copy(block, block + num_columns, to);
           }
         });
  return absl::OkStatus();
}

}  // namespace
}  // namespace cpu

std::unique_ptr<Ops> MakeCpuOps(const OpsOptions& options) {
  return std::make_unique<cpu::CpuOps>(options);
}

}  // namespace baton::engine
