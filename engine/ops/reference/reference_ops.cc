// The judge: each operation as its definition reads, from the small functions beside this file.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/status.h"
#include "engine/ops/ops.h"
#include "engine/ops/reference/activation.h"
#include "engine/ops/reference/attention.h"
#include "engine/ops/reference/embedding.h"
#include "engine/ops/reference/experts.h"
#include "engine/ops/reference/kv_access.h"
#include "engine/ops/reference/matmul.h"
#include "engine/ops/reference/reference_weights.h"
#include "engine/ops/reference/rms_norm.h"
#include "engine/ops/reference/rope.h"
#include "engine/ops/reference/softcap.h"
#include "engine/sampling/host_sampling.h"

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
  absl::StatusOr<std::unique_ptr<MatrixBuffer>> NewMatrix(int rows, int columns) override {
    return std::make_unique<FloatMatrix>(rows, columns);
  }
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout,
                                                    int num_blocks) override {
    return KvPool::Create(layout, num_blocks);
  }
  absl::StatusOr<std::optional<std::uint64_t>> KvMemoryLeft() const override {
    return std::nullopt;
  }
  bool takes_rope_angles() const override { return true; }
  absl::StatusOr<bool> BeginStep(const ModelPlan& plan, const StepInput& input,
                                 KvPool& kv) override;
  absl::Status LayerWritten(int layer, const LayerHook& on_layer) override {
    if (on_layer) on_layer(layer);
    return absl::OkStatus();
  }
  absl::Status Sample(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                      const StepInput& input) override {
    return sampling_.Sample(*this, plan, edges, x, input.samples);
  }
  absl::Status EndStep(const StepInput& /*input*/, const LayerHook& /*on_layer*/,
                       std::span<SampledToken> tokens) override {
    std::move(sampling_.tokens().begin(), sampling_.tokens().end(), tokens.begin());
    return absl::OkStatus();
  }
  void AbandonStep() override {}

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

  absl::Status Embed(const ModelPlan& plan, const EdgeWeights& edges, const RaggedBatch& batch,
                     Matrix x) override {
    reference::Embedding(*static_cast<const ReferenceEdges&>(edges).embedding, plan.embedding_scale,
                         batch.tokens, x.f32());
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
  // out[t, :] = Wdown * (act(Wgate * x[t, :]) * (Wup * x[t, :])).   x, out: [num_rows, hidden]
  void ApplyMlp(const reference::Mlp& mlp, const LayerPlan& shape, const float* x, int num_rows,
                float* out);
  // added_ = the mixture of experts of every row of normed_.
  void ApplyExperts(const ReferenceLayer& layer, const LayerPlan& shape, int num_rows);
  // x += added_, which goes through the norm `post_norm` before unless that is empty.
  void AddTo(Matrix x, const std::vector<float>& post_norm, float eps);

  HostSampling sampling_;
  std::vector<float> normed_, k_, v_, gate_, up_, added_;  // [num_rows, ...]
  std::vector<float> router_logits_, expert_in_, expert_out_;
  std::vector<float> keys_, values_, scores_;
  std::vector<float> dequantized_row_;
};

absl::StatusOr<bool> ReferenceOps::BeginStep(const ModelPlan& /*plan*/, const StepInput& /*input*/,
                                             KvPool& kv) {
  if (kv.device() != KvPool::kHost) {
    return absl::InvalidArgumentError(
        "the KV pool lies on a device; this backend computes on the CPU");
  }
  return true;
}

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

// Normalizes each head by itself.   heads: [num_heads, head_dim]; weight: [head_dim]
void NormalizeHeads(const std::vector<float>& weight, float eps, int num_heads, float* heads) {
  const std::size_t head_dim = weight.size();
  for (int head = 0; head < num_heads; ++head) {
    float* values = heads + head * head_dim;
    reference::RmsNormRow({values, head_dim}, weight, eps, values);
  }
}

// Rotates q and k of row `t` of the batch.
void RotateRow(const ModelPlan& plan, const LayerPlan& shape, const RaggedBatch& batch, int t,
               float* q, float* k) {
  const Rope& rope = plan.ropes[shape.rope];
  const RopeAngles& angles = batch.angles[shape.rope];
  const std::size_t offset = static_cast<std::size_t>(t) * (rope.dim / 2);
  const float* cos = angles.cos + offset;
  const float* sin = angles.sin + offset;
  reference::RopeRow(rope, cos, sin, shape.num_heads, shape.head_dim, q);
  reference::RopeRow(rope, cos, sin, shape.num_kv_heads, shape.head_dim, k);
}

absl::Status ReferenceOps::QkvRopeAppend(const ModelPlan& plan, int layer,
                                         const LayerWeights& weights, const RaggedBatch& batch,
                                         Matrix x, KvPool& kv, Matrix q) {
  const LayerPlan& shape = plan.layers[layer];
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
  for (int t = 0; t < num_rows; ++t) {
    float* q_row = q.f32() + t * q_columns;
    float* k_row = k_.data() + t * kv_columns;
    if (shape.qk_norm) {
      NormalizeHeads(own.q_norm, shape.norm_eps, shape.num_heads, q_row);
      NormalizeHeads(own.k_norm, shape.norm_eps, shape.num_kv_heads, k_row);
    }
    RotateRow(plan, shape, batch, t, q_row, k_row);
  }
  for (const BatchSequence& sequence : batch.sequences) {
    for (int i = 0; i < sequence.num_rows; ++i) {
      const std::size_t offset = (sequence.first_row + i) * kv_columns;
      const int position = sequence.start_position + i;
      reference::WriteKv(kv, layer, sequence.block_table, position, KvHalf::kKey,
                         k_.data() + offset);
      reference::WriteKv(kv, layer, sequence.block_table, position, KvHalf::kValue,
                         v_.data() + offset);
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
    // What any of the sequence's rows sees; each row sees a part of it.
    const int begin = shape.FirstVisible(sequence.start_position);
    const int end = sequence.start_position + sequence.num_rows;
    keys_.resize(static_cast<std::size_t>(end - begin) * shape.head_dim);
    values_.resize(keys_.size());
    for (int head = 0; head < shape.num_heads; ++head) {
      if (head % heads_per_kv_head == 0) {
        const int kv_head = head / heads_per_kv_head;
        reference::ReadKv(kv, layer, sequence.block_table, begin, end, kv_head, KvHalf::kKey,
                          keys_.data());
        reference::ReadKv(kv, layer, sequence.block_table, begin, end, kv_head, KvHalf::kValue,
                          values_.data());
      }
      for (int i = 0; i < sequence.num_rows; ++i) {
        const int position = sequence.start_position + i;
        const int first = shape.FirstVisible(position);
        const std::size_t skipped = static_cast<std::size_t>(first - begin) * shape.head_dim;
        const std::size_t offset =
            (sequence.first_row + i) * columns + static_cast<std::size_t>(head) * shape.head_dim;
        reference::AttentionRow(q.f32() + offset, keys_.data() + skipped, values_.data() + skipped,
                                position - first + 1, shape.head_dim, shape.attention_scale,
                                shape.attention_softcap, scores_, out.f32() + offset);
      }
    }
  }
  return absl::OkStatus();
}

void ReferenceOps::AddTo(Matrix x, const std::vector<float>& post_norm, float eps) {
  const std::size_t hidden = x.columns;
  for (std::size_t begin = 0; begin < added_.size() && !post_norm.empty(); begin += hidden) {
    float* row = added_.data() + begin;
    reference::RmsNormRow({row, hidden}, post_norm, eps, row);
  }
  for (std::size_t i = 0; i < added_.size(); ++i) x.f32()[i] += added_[i];
}

absl::Status ReferenceOps::AttentionOutput(const ModelPlan& plan, int layer,
                                           const LayerWeights& weights, Matrix attention,
                                           Matrix x) {
  const auto& own = static_cast<const ReferenceLayer&>(weights);
  added_.resize(static_cast<std::size_t>(x.rows) * plan.hidden_size);
  Apply(own.o, attention.f32(), x.rows, added_.data());
  AddTo(x, own.attention_post_norm, plan.layers[layer].norm_eps);
  return absl::OkStatus();
}

void ReferenceOps::ApplyMlp(const reference::Mlp& mlp, const LayerPlan& shape, const float* x,
                            int num_rows, float* out) {
  gate_.resize(static_cast<std::size_t>(num_rows) * shape.intermediate_size);
  up_.resize(gate_.size());
  Apply(mlp.gate, x, num_rows, gate_.data());
  Apply(mlp.up, x, num_rows, up_.data());
  reference::Gate(shape.activation, up_.data(), gate_.size(), gate_.data());
  Apply(mlp.down, gate_.data(), num_rows, out);
}

void ReferenceOps::ApplyExperts(const ReferenceLayer& layer, const LayerPlan& shape, int num_rows) {
  const std::size_t hidden = normed_.size() / num_rows;
  const std::size_t num_experts = shape.num_experts;
  router_logits_.resize(num_rows * num_experts);
  Apply(layer.router, normed_.data(), num_rows, router_logits_.data());
  struct RowShare {
    int row;
    float weight;
  };
  std::vector<std::vector<RowShare>> rows_of(num_experts);
  for (int t = 0; t < num_rows; ++t) {
    const std::span<const float> logits(router_logits_.data() + t * num_experts, num_experts);
    for (const auto& share : reference::ChooseExperts(logits, shape.experts_per_token,
                                                      shape.normalize_expert_weights)) {
      rows_of[share.expert].push_back({t, share.weight});
    }
  }
  // Experts in the order of their index, so that each row's sum runs in that order.
  std::fill(added_.begin(), added_.end(), 0.0f);
  for (std::size_t expert = 0; expert < num_experts; ++expert) {
    const std::vector<RowShare>& rows = rows_of[expert];
    expert_in_.resize(rows.size() * hidden);
    expert_out_.resize(rows.size() * hidden);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(normed_.data() + rows[i].row * hidden, hidden, expert_in_.data() + i * hidden);
    }
    ApplyMlp(layer.experts[expert], shape, expert_in_.data(), static_cast<int>(rows.size()),
             expert_out_.data());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      float* sum = added_.data() + rows[i].row * hidden;
      const float* out = expert_out_.data() + i * hidden;
      for (std::size_t c = 0; c < hidden; ++c) sum[c] += rows[i].weight * out[c];
    }
  }
}

absl::Status ReferenceOps::Mlp(const ModelPlan& plan, int layer, const LayerWeights& weights,
                               Matrix x) {
  const LayerPlan& shape = plan.layers[layer];
  const auto& own = static_cast<const ReferenceLayer&>(weights);
  added_.resize(static_cast<std::size_t>(x.rows) * plan.hidden_size);
  Normalize(x, x.rows, own.mlp_norm, shape.norm_eps);
  if (shape.num_experts == 0) {
    ApplyMlp(own.mlp, shape, normed_.data(), x.rows, added_.data());
  } else {
    ApplyExperts(own, shape, x.rows);
  }
  AddTo(x, own.mlp_post_norm, shape.norm_eps);
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
  reference::SoftCap(plan.logit_softcap, rows.size() * plan.vocab_size, logits);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Ops> MakeReferenceOps() { return std::make_unique<ReferenceOps>(); }

}  // namespace baton::engine
