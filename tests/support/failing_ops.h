#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "engine/ops/ops.h"

namespace baton::testing {

// Another backend, of which a test may let a layer's MLP fail, or do something before it.
class FailingOps final : public engine::Ops {
 public:
  // Asked before every Mlp.
  using BeforeMlp = std::function<absl::Status(int layer)>;
  FailingOps(std::unique_ptr<engine::Ops> ops, BeforeMlp before_mlp)
      : ops_(std::move(ops)), before_mlp_(std::move(before_mlp)) {}

  absl::StatusOr<std::unique_ptr<engine::MatrixBuffer>> NewMatrix(int rows, int columns) override {
    return ops_->NewMatrix(rows, columns);
  }
  absl::StatusOr<std::unique_ptr<engine::KvPool>> NewKvPool(const engine::KvLayout& layout,
                                                            int num_blocks) override {
    return ops_->NewKvPool(layout, num_blocks);
  }
  absl::StatusOr<std::optional<std::uint64_t>> KvMemoryLeft() const override {
    return ops_->KvMemoryLeft();
  }
  bool takes_rope_angles() const override { return ops_->takes_rope_angles(); }
  absl::StatusOr<std::unique_ptr<engine::LayerWeights>> LoadLayer(
      const checkpoint::Checkpoint& checkpoint, const engine::ModelPlan& plan, int layer) override {
    return ops_->LoadLayer(checkpoint, plan, layer);
  }
  absl::StatusOr<std::unique_ptr<engine::EdgeWeights>> LoadEdges(
      const checkpoint::Checkpoint& checkpoint, const engine::ModelPlan& plan) override {
    return ops_->LoadEdges(checkpoint, plan);
  }
  absl::StatusOr<bool> BeginStep(const engine::ModelPlan& plan, const engine::StepInput& input,
                                 engine::KvPool& kv) override {
    return ops_->BeginStep(plan, input, kv);
  }
  absl::Status LayerWritten(int layer, const engine::LayerHook& on_layer) override {
    return ops_->LayerWritten(layer, on_layer);
  }
  absl::Status Embed(const engine::ModelPlan& plan, const engine::EdgeWeights& edges,
                     const engine::RaggedBatch& batch, engine::Matrix x) override {
    return ops_->Embed(plan, edges, batch, x);
  }
  absl::Status QkvRopeAppend(const engine::ModelPlan& plan, int layer,
                             const engine::LayerWeights& weights, const engine::RaggedBatch& batch,
                             engine::Matrix x, engine::KvPool& kv, engine::Matrix q) override {
    return ops_->QkvRopeAppend(plan, layer, weights, batch, x, kv, q);
  }
  absl::Status PagedAttention(const engine::ModelPlan& plan, int layer,
                              const engine::RaggedBatch& batch, engine::Matrix q,
                              const engine::KvPool& kv, engine::Matrix out) override {
    return ops_->PagedAttention(plan, layer, batch, q, kv, out);
  }
  absl::Status AttentionOutput(const engine::ModelPlan& plan, int layer,
                               const engine::LayerWeights& weights, engine::Matrix attention,
                               engine::Matrix x) override {
    return ops_->AttentionOutput(plan, layer, weights, attention, x);
  }
  absl::Status Mlp(const engine::ModelPlan& plan, int layer, const engine::LayerWeights& weights,
                   engine::Matrix x) override {
    if (absl::Status status = before_mlp_(layer); !status.ok()) return status;
    return ops_->Mlp(plan, layer, weights, x);
  }
  absl::Status Logits(const engine::ModelPlan& plan, const engine::EdgeWeights& edges,
                      engine::Matrix x, std::span<const std::int32_t> rows,
                      float* logits) override {
    return ops_->Logits(plan, edges, x, rows, logits);
  }
  absl::Status Sample(const engine::ModelPlan& plan, const engine::EdgeWeights& edges,
                      engine::Matrix x, const engine::StepInput& input) override {
    return ops_->Sample(plan, edges, x, input);
  }
  absl::Status EndStep(const engine::StepInput& input, const engine::LayerHook& on_layer,
                       std::span<SampledToken> tokens) override {
    return ops_->EndStep(input, on_layer, tokens);
  }
  void AbandonStep() override { ops_->AbandonStep(); }

 private:
  const std::unique_ptr<engine::Ops> ops_;
  const BeforeMlp before_mlp_;
};

}  // namespace baton::testing
