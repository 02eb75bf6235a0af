#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "engine/ops/cpu/activation_buffer.h"
#include "engine/ops/cpu/aligned_buffer.h"
#include "engine/ops/cpu/append_kv.h"
#include "engine/ops/cpu/attention.h"
#include "engine/ops/cpu/cpu_weights.h"
#include "engine/ops/cpu/kernels.h"
#include "engine/ops/cpu/matmul.h"
#include "engine/ops/cpu/mlp.h"
#include "engine/ops/cpu/ordered_input.h"
#include "engine/ops/cpu/rank_link.h"
#include "engine/ops/cpu/residual_sum.h"
#include "engine/ops/cpu/row_loop.h"
#include "engine/ops/ops.h"
#include "engine/parallel/cpu_rank.h"
#include "engine/parallel/shard.h"
#include "engine/sampling/host_sampling.h"
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

class CpuOps : public Ops {
 public:
  CpuOps(const OpsOptions& options, std::optional<CpuRank> rank)
      : rank_(std::move(rank)),
        compute_(options.compute),
        pool_({.num_threads = options.num_threads,
               .nice = options.nice,
               .batch = options.batch_scheduling,
               .spin = options.spin}),
        link_(pool_, rank_ ? rank_->communicator : nullptr),
        attention_(pool_),
        mlp_(pool_, link_, options.compute),
        input_(pool_),
        ordered_{OrderedInput(pool_), OrderedInput(pool_), OrderedInput(pool_)},
        sum_(pool_, link_) {}

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
    if (!on_layer) return absl::OkStatus();
    if (link_.alone()) {
      on_layer(layer);
    } else {
      written_ = {layer, &on_layer};
    }
    return absl::OkStatus();
  }
  absl::Status Sample(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                      const StepInput& input) override {
    const bool chooses = !rank_ || rank_->shard.rank == 0;
    return sampling_.Sample(*this, plan, edges, x, input.samples, chooses);
  }
  absl::Status EndStep(const StepInput& /*input*/, const LayerHook& /*on_layer*/,
                       std::span<SampledToken> tokens) override {
    std::move(sampling_.tokens().begin(), sampling_.tokens().end(), tokens.begin());
    return absl::OkStatus();
  }
  void AbandonStep() override { written_ = {}; }

  absl::StatusOr<std::unique_ptr<LayerWeights>> LoadLayer(const Checkpoint& checkpoint,
                                                          const ModelPlan& plan,
                                                          int layer) override {
    BATON_ASSIGN_OR_RETURN(const Shard shard, ShardOf(plan));
    return LoadCpuLayer(checkpoint, WholePlan(plan), shard, layer, pool_, weight_memory_);
  }
  absl::StatusOr<std::unique_ptr<EdgeWeights>> LoadEdges(const Checkpoint& checkpoint,
                                                         const ModelPlan& plan) override {
    BATON_ASSIGN_OR_RETURN(const Shard shard, ShardOf(plan));
    return LoadCpuEdges(checkpoint, WholePlan(plan), shard, pool_, weight_memory_);
  }
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
  // Whether any of `parts` reads quantized activations.
  bool Quantizes(std::span<const PackedMatrix* const> parts) const {
    ActivationForms forms;
    for (const PackedMatrix* part : parts) forms.Add(*part, compute_);
    return forms.quantized;
  }
  // Every rank has written its part of the layer's KV: they have just met.
  void TellLayerWritten() {
    if (written_.hook != nullptr) (*written_.hook)(written_.layer);
    written_ = {};
  }
  static absl::Status CheckShape(const char* what, Matrix matrix, int rows, int columns);
  // The whole model's plan, and what of it is computed here. `plan` is the caller's.
  const ModelPlan& WholePlan(const ModelPlan& plan) const { return rank_ ? rank_->whole : plan; }
  absl::StatusOr<Shard> ShardOf(const ModelPlan& plan) const {
    if (rank_) return rank_->shard;
    return MakeShard(plan, /*world_size=*/1, /*rank=*/0);
  }

  const std::optional<CpuRank> rank_;  // of a group
  const ComputeMode compute_;
  ThreadPool pool_;
  RankLink link_;
  WeightMemory weight_memory_;
  Attention attention_;
  cpu::Mlp mlp_;
  HostSampling sampling_;
  // Of a rank of several: the layer whose hook waits until the others have written it too.
  struct {
    int layer = 0;
    const LayerHook* hook = nullptr;
  } written_;
  ActivationBuffer input_;           // of the next product
  OrderedInput ordered_[3];          // the same, where weights have an order
  AlignedBuffer<float> key_values_;  // [num_rows, 2 * num_kv_heads * head_dim]
  ResidualSum sum_;                  // of attention
};

absl::StatusOr<bool> CpuOps::BeginStep(const ModelPlan& /*plan*/, const StepInput& /*input*/,
                                       KvPool& kv) {
  if (kv.device() != KvPool::kHost) {
    return absl::InvalidArgumentError(
        "the KV pool lies on a device; this backend computes on the CPU");
  }
  if (kv.layout().dtype == KvDType::kBF16) {
    return absl::InvalidArgumentError("the CPU backend keeps KV in f16 or f32, not in bf16");
  }
  return true;
}

absl::Status CpuOps::CheckShape(const char* what, Matrix matrix, int rows, int columns) {
  if (matrix.rows >= rows && matrix.columns == columns && matrix.data != nullptr) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat("shape of %s: %d x %d, expected %d x %d", what,
                                                    matrix.rows, matrix.columns, rows, columns));
}

absl::Status CpuOps::Embed(const ModelPlan& plan, const EdgeWeights& edges,
                           const RaggedBatch& batch, Matrix x) {
  const Tensor& embedding = *static_cast<const CpuEdges&>(edges).embedding;
  BATON_RETURN_IF_ERROR(CheckShape("x", x, batch.num_rows(), embedding.columns()));
  for (const std::int32_t token : batch.tokens) {
    if (token < 0 || token >= embedding.rows()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("token id out of range: %d, vocabulary %d", token, embedding.rows()));
    }
  }
  ForRows(pool_, batch.num_rows(), [&](int row, int) {
    const std::byte* from = embedding.data.data() + batch.tokens[row] * embedding.row_bytes();
    float* to = x.f32() + static_cast<std::size_t>(row) * x.columns;
    checkpoint::DequantizeRow(embedding.dtype, from, embedding.columns(), to);
    if (plan.embedding_scale == 1.0f) return;
    for (int i = 0; i < x.columns; ++i) to[i] *= plan.embedding_scale;
  });
  return absl::OkStatus();
}

absl::Status CpuOps::QkvRopeAppend(const ModelPlan& plan, int layer, const LayerWeights& weights,
                                   const RaggedBatch& batch, Matrix x, KvPool& kv, Matrix q) {
  const auto& own = static_cast<const CpuLayer&>(weights);
  const LayerPlan& shape = plan.layers[layer];
  const int num_rows = batch.num_rows();
  BATON_RETURN_IF_ERROR(CheckShape("x", x, num_rows, plan.hidden_size));
  BATON_RETURN_IF_ERROR(CheckShape("q", q, num_rows, shape.num_heads * shape.head_dim));
  const Linear* maps[] = {&own.q, &own.k, &own.v};
  const PackedMatrix* parts[] = {&own.q.matrix, &own.k.matrix, &own.v.matrix};
  const Activations n =
      input_.Normalize(x, {}, num_rows, own.attention_norm, shape.norm_eps, Quantizes(parts));
  Activations inputs[3];
  Product products[3];
  for (int i = 0; i < 3; ++i) {
    inputs[i] = i > 0 && SameOrder(*parts[i], *parts[i - 1]) ? inputs[i - 1]
                                                             : ordered_[i].Apply(n, *parts[i]);
    products[i] = {parts[i], {0, num_rows}, &inputs[i]};
  }
  const int kv_columns = shape.num_kv_heads * shape.head_dim;
  float* key_values = key_values_.Reserve(static_cast<std::size_t>(num_rows) * 2 * kv_columns);
  MatMul(pool_, n, std::span<const Product>(products),
         [&](int part, int column, int num_columns, int first_row, int rows, const float* block) {
           const std::size_t stride = part == 0 ? q.columns : 2 * kv_columns;
           float* to = part == 0 ? q.f32() : key_values + (part - 1) * kv_columns;
           StoreBlock(block, maps[part]->BiasFrom(column), rows, num_columns, stride,
                      to + first_row * stride + column);
         });
  AppendKv(pool_, plan, layer, own, batch, q.f32(), key_values, kv);
  return absl::OkStatus();
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
  const LayerPlan& shape = plan.layers[layer];
  BATON_RETURN_IF_ERROR(
      CheckShape("attention", attention, x.rows, shape.num_heads * shape.head_dim));
  BATON_RETURN_IF_ERROR(CheckShape("x", x, x.rows, plan.hidden_size));
  BATON_ASSIGN_OR_RETURN(
      const Matrix whole,
      link_.Gather(attention.Rows(x.rows), own.attention_columns, own.o.matrix.columns()));
  TellLayerWritten();
  const PackedMatrix* parts[] = {&own.o.matrix};
  const Activations a = ordered_[0].Apply(input_.Prepare(whole, Quantizes(parts)), own.o.matrix);
  const std::size_t stride = x.columns, first_column = own.hidden_columns.begin;
  BATON_ASSIGN_OR_RETURN(float* const added, sum_.Start(x, shape.post_norms));
  MatMul(pool_, a, parts,
         [&](int, int column, int num_columns, int first_row, int rows, const float* block) {
           const float* bias = own.o.BiasFrom(column);
           const std::size_t at = first_row * stride + first_column + column;
           if (added != nullptr) {
             StoreBlock(block, bias, rows, num_columns, stride, added + at);
           } else {
             AddBlock(block, bias, rows, num_columns, stride, x.f32() + at);
           }
         });
  return sum_.Finish(own.attention_post_norm, shape.norm_eps, x);
}

absl::Status CpuOps::Mlp(const ModelPlan& plan, int layer, const LayerWeights& weights, Matrix x) {
  BATON_RETURN_IF_ERROR(CheckShape("x", x, x.rows, plan.hidden_size));
  if (x.rows == 0) return absl::OkStatus();
  return mlp_.Run(plan.layers[layer], static_cast<const CpuLayer&>(weights), x);
}

absl::Status CpuOps::Logits(const ModelPlan& plan, const EdgeWeights& edges, Matrix x,
                            std::span<const std::int32_t> rows, float* logits) {
  const auto& own = static_cast<const CpuEdges&>(edges);
  if (rows.empty()) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(
      CheckShape("x", x, *std::max_element(rows.begin(), rows.end()) + 1, plan.hidden_size));
  const PackedMatrix* parts[] = {&own.head};
  const Activations n =
      ordered_[0].Apply(input_.Normalize(x, rows, static_cast<int>(rows.size()), own.norm,
                                         plan.norm_eps, Quantizes(parts)),
                        own.head);
  const std::size_t stride = plan.vocab_size;
  BATON_ASSIGN_OR_RETURN(logits, link_.LogitsOfFirst(logits));
  logits += own.vocab.begin;
  MatMul(pool_, n, parts,
         [&](int, int column, int num_columns, int first_row, int num_rows, const float* block) {
           float* to = logits + first_row * stride + column;
           StoreBlock(block, nullptr, num_rows, num_columns, stride, to);
           if (plan.logit_softcap <= 0.0f) return;
           for (int row = 0; row < num_rows; ++row, to += stride) {
             SoftCapRow(plan.logit_softcap, num_columns, to);
           }
         });
  return link_.Meet();
}

}  // namespace
}  // namespace cpu

std::unique_ptr<Ops> MakeCpuOps(const OpsOptions& options) {
  return std::make_unique<cpu::CpuOps>(options, std::nullopt);
}

std::unique_ptr<Ops> MakeCpuRankOps(const OpsOptions& options, CpuRank rank) {
  return std::make_unique<cpu::CpuOps>(options, std::move(rank));
}

}  // namespace baton::engine
