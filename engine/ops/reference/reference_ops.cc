// The judge: each operation as its definition reads, from the small functions beside this file.
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "common/status.h"
#include "engine/ops/ops.h"
#include "engine/ops/reference/attention.h"
#include "engine/ops/reference/embedding.h"
#include "engine/ops/reference/kv_access.h"
#include "engine/ops/reference/matmul.h"
#include "engine/ops/reference/reference_weights.h"
#include "engine/ops/reference/rms_norm.h"
#include "engine/ops/reference/rope.h"
#include "engine/ops/reference/swiglu.h"

namespace baton::engine {
namespace {

using reference::KvHalf;
using reference::Linear;
using reference::ReferenceEdges;
using reference::ReferenceLayer;

class FloatMatrix final : public MatrixBuffer {
 public:
  FloatMatrix(int rows, int columns)
      : rows_(rows), columns_(columns), values_(static_cast<std::size_t>(rows) * columns) {}
  Matrix matrix() const override { return {const_cast<float*>(values_.data()), rows_, columns_}; }

 private:
  const int rows_, columns_;
  std::vector<float> values_;
};

class ReferenceOps final : public Ops {
 public:
  std::unique_ptr<MatrixBuffer> NewMatrix(int rows, int columns) override {
    return std::make_unique<FloatMatrix>(rows, columns);
  }

  absl::StatusOr<std::unique_ptr<LayerWeights>> LoadLayer(const checkpoint::Checkpoint& checkpoint,
                                                          const ModelPlan& plan,
                                                          int layer) override {
    BATON_ASSIGN_OR_RETURN(ReferenceLayer weights,
                           reference::LoadReferenceLayer(checkpoint, plan, layer));
    return std::make_unique<ReferenceLayer>(std::move(weights));
  }

  absl::StatusOr<std::unique_ptr<EdgeWeights>> LoadEdges(const checkpoint::Checkpoint& checkpoint,
                                                         const ModelPlan& plan) override {
    BATON_ASSIGN_OR_RETURN(ReferenceEdges edges, reference::LoadReferenceEdges(checkpoint, plan));
    return std::make_unique<ReferenceEdges>(std::move(edges));
  }

  absl::Status Embed(const ModelPlan& /*plan*/, const EdgeWeights& edges, const RaggedBatch& batch,
                     Matrix x) override {
    reference::Embedding(*static_cast<const ReferenceEdges&>(edges).embedding, batch.tokens,
                         x.f32());
    return absl::OkStatus();
  }

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
  // out[t, :] = linear * x[t, :] + bias.   x: [num_rows, columns]; out: [num_rows, out columns]
  void Apply(const Linear& linear, const float* x, int num_rows, float* out);
  // normed_ = RmsNorm of every row of x.
  void Normalize(Matrix x, int num_rows, const std::vector<float>& weight, float eps);

  std::vector<float> normed_, k_, v_, gate_, up_, added_;
  std::vector<float> keys_, values_, scores_;
  std::vector<float> dequantized_row_;
};

void ReferenceOps::Apply(const Linear& linear, const float* x, int num_rows, float* out) {
  reference::MatMul(*linear.weight, x, num_rows, out, dequantized_row_);
  if (linear.bias.empty()) return;
  for (int t = 0; t < num_rows; ++t) {
    for (const float bias : linear.bias) *out++ += bias;
  }
}

void ReferenceOps::Normalize(Matrix x, int num_rows, const std::vector<float>& weight, float eps) {
  const std::size_t hidden = weight.size();
  normed_.resize(num_rows * hidden);
  for (int t = 0; t < num_rows; ++t) {
    reference::RmsNormRow({x.f32() + t * hidden, hidden}, weight, eps, normed_.data() + t * hidden);
  }
}

absl::Status ReferenceOps::QkvRopeAppend(const ModelPlan& plan, int layer,
                                         const LayerWeights& weights, const RaggedBatch& batch,
                                         Matrix x, KvPool& kv, Matrix q) {
  const LayerPlan& shape = plan.layers[layer];
  const Rope& rope = plan.ropes[shape.rope];
  const RopeAngles& angles = batch.angles[shape.rope];
  const auto& own = static_cast<const ReferenceLayer&>(weights);
  const int num_rows = batch.num_rows();
  const std::size_t q_columns = static_cast<std::size_t>(shape.num_heads) * shape.head_dim;
  const std::size_t kv_columns = static_cast<std::size_t>(shape.num_kv_heads) * shape.head_dim;
  k_.resize(num_rows * kv_columns);
  v_.resize(num_rows * kv_columns);

  Normalize(x, num_rows, own.attention_norm, shape.norm_eps);
  Apply(own.q, normed_.data(), num_rows, q.f32());
  Apply(own.k, normed_.data(), num_rows, k_.data());
  Apply(own.v, normed_.data(), num_rows, v_.data());
  for (const BatchSequence& sequence : batch.sequences) {
    for (int i = 0; i < sequence.num_rows; ++i) {
      const int t = sequence.first_row + i;
      const int position = sequence.start_position + i;
      float* k = k_.data() + t * kv_columns;
      const float* cos = angles.cos + static_cast<std::size_t>(t) * (rope.dim / 2);
      const float* sin = angles.sin + static_cast<std::size_t>(t) * (rope.dim / 2);
      reference::RopeRow(rope, cos, sin, shape.num_heads, shape.head_dim, q.f32() + t * q_columns);
      reference::RopeRow(rope, cos, sin, shape.num_kv_heads, shape.head_dim, k);
      reference::WriteKv(kv, layer, sequence.block_table, position, KvHalf::kKey, k);
      reference::WriteKv(kv, layer, sequence.block_table, position, KvHalf::kValue,
                         v_.data() + t * kv_columns);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceOps::PagedAttention(const ModelPlan& plan, int layer,
                                          const RaggedBatch& batch, Matrix q, const KvPool& kv,
                                          Matrix out) {
  const LayerPlan& shape = plan.layers[layer];
  const std::size_t columns = static_cast<std::size_t>(shape.num_heads) * shape.head_dim;
  const int heads_per_kv_head = shape.num_heads / shape.num_kv_heads;
  for (const BatchSequence& sequence : batch.sequences) {
    const int num_positions = sequence.start_position + sequence.num_rows;
    keys_.resize(static_cast<std::size_t>(num_positions) * shape.head_dim);
    values_.resize(keys_.size());
    for (int head = 0; head < shape.num_heads; ++head) {
      if (head % heads_per_kv_head == 0) {
        const int kv_head = head / heads_per_kv_head;
        reference::ReadKv(kv, layer, sequence.block_table, num_positions, kv_head, KvHalf::kKey,
                          keys_.data());
        reference::ReadKv(kv, layer, sequence.block_table, num_positions, kv_head, KvHalf::kValue,
                          values_.data());
      }
      for (int i = 0; i < sequence.num_rows; ++i) {
        const std::size_t offset =
            (sequence.first_row + i) * columns + static_cast<std::size_t>(head) * shape.head_dim;
        reference::AttentionRow(q.f32() + offset, keys_.data(), values_.data(),
                                sequence.start_position + i + 1, shape.head_dim,
                                shape.attention_scale, scores_, out.f32() + offset);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceOps::AttentionOutput(const ModelPlan& plan, int /*layer*/,
                                           const LayerWeights& weights, Matrix attention,
                                           Matrix x) {
  added_.resize(static_cast<std::size_t>(x.rows) * plan.hidden_size);
  Apply(static_cast<const ReferenceLayer&>(weights).o, attention.f32(), x.rows, added_.data());
  for (std::size_t i = 0; i < added_.size(); ++i) x.f32()[i] += added_[i];
  return absl::OkStatus();
}

absl::Status ReferenceOps::Mlp(const ModelPlan& plan, int layer, const LayerWeights& weights,
                               Matrix x) {
  const LayerPlan& shape = plan.layers[layer];
  const auto& own = static_cast<const ReferenceLayer&>(weights);
  gate_.resize(static_cast<std::size_t>(x.rows) * shape.intermediate_size);
  up_.resize(gate_.size());
  added_.resize(static_cast<std::size_t>(x.rows) * plan.hidden_size);

  Normalize(x, x.rows, own.mlp_norm, shape.norm_eps);
  Apply(own.gate, normed_.data(), x.rows, gate_.data());
  Apply(own.up, normed_.data(), x.rows, up_.data());
  reference::SwiGlu(up_.data(), gate_.size(), gate_.data());
  Apply(own.down, gate_.data(), x.rows, added_.data());
  for (std::size_t i = 0; i < added_.size(); ++i) x.f32()[i] += added_[i];
  return absl::OkStatus();
}

absl::Status ReferenceOps::Logits(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                                  std::span<const std::int32_t> rows, float* logits) {
  const auto& own = static_cast<const ReferenceEdges&>(edges);
  const std::size_t hidden = plan.hidden_size;
  normed_.resize(rows.size() * hidden);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    reference::RmsNormRow({x.f32() + rows[i] * hidden, hidden}, own.norm, plan.norm_eps,
                          normed_.data() + i * hidden);
  }
  reference::MatMul(*own.head, normed_.data(), static_cast<int>(rows.size()), logits,
                    dequantized_row_);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Ops> MakeReferenceOps() { return std::make_unique<ReferenceOps>(); }

}  // namespace baton::engine
