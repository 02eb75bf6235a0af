#pragma once
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "engine/ops/ops.h"

namespace baton::bench {

// Wraps a backend and adds up the wall time of each of its operations. Same threading rules as the
// backend.
class TimedOps final : public engine::Ops {
 public:
  enum Operation { kEmbed, kQkv, kAttention, kOutput, kMlp, kLogits, kNumOperations };
  static constexpr std::array<const char*, kNumOperations> kNames = {"embed",  "qkv", "attention",
                                                                     "output", "mlp", "logits"};
  using Times = std::array<double, kNumOperations>;  // seconds

  // `times` outlives the wrapper.
  TimedOps(std::unique_ptr<engine::Ops> ops, Times& times) : ops_(std::move(ops)), times_(times) {}

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
  absl::StatusOr<bool> BeginStep(const engine::ModelPlan& plan, const engine::StepInput& input,
                                 engine::KvPool& kv) override {
    return ops_->BeginStep(plan, input, kv);
  }
  absl::Status LayerWritten(int layer, const engine::LayerHook& on_layer) override {
    return ops_->LayerWritten(layer, on_layer);
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
  absl::StatusOr<std::unique_ptr<engine::LayerWeights>> LoadLayer(
      const checkpoint::Checkpoint& checkpoint, const engine::ModelPlan& plan, int layer) override {
    return ops_->LoadLayer(checkpoint, plan, layer);
  }
  absl::StatusOr<std::unique_ptr<engine::EdgeWeights>> LoadEdges(
      const checkpoint::Checkpoint& checkpoint, const engine::ModelPlan& plan) override {
    return ops_->LoadEdges(checkpoint, plan);
  }
  absl::Status Embed(const engine::ModelPlan& plan, const engine::EdgeWeights& edges,
                     const engine::RaggedBatch& batch, engine::Matrix x) override {
    const Timer timer(times_[kEmbed]);
    return ops_->Embed(plan, edges, batch, x);
  }
  absl::Status QkvRopeAppend(const engine::ModelPlan& plan, int layer,
                             const engine::LayerWeights& weights, const engine::RaggedBatch& batch,
                             engine::Matrix x, engine::KvPool& kv, engine::Matrix q) override {
    const Timer timer(times_[kQkv]);
    return ops_->QkvRopeAppend(plan, layer, weights, batch, x, kv, q);
  }
  absl::Status PagedAttention(const engine::ModelPlan& plan, int layer,
                              const engine::RaggedBatch& batch, engine::Matrix q,
                              const engine::KvPool& kv, engine::Matrix out) override {
    const Timer timer(times_[kAttention]);
    return ops_->PagedAttention(plan, layer, batch, q, kv, out);
  }
  absl::Status AttentionOutput(const engine::ModelPlan& plan, int layer,
                               const engine::LayerWeights& weights, engine::Matrix attention,
                               engine::Matrix x) override {
    const Timer timer(times_[kOutput]);
    return ops_->AttentionOutput(plan, layer, weights, attention, x);
  }
  absl::Status Mlp(const engine::ModelPlan& plan, int layer, const engine::LayerWeights& weights,
                   engine::Matrix x) override {
    const Timer timer(times_[kMlp]);
    return ops_->Mlp(plan, layer, weights, x);
  }
  absl::Status Logits(const engine::ModelPlan& plan, const engine::EdgeWeights& edges,
                      engine::Matrix x, std::span<const std::int32_t> rows,
                      float* logits) override {
    const Timer timer(times_[kLogits]);
    return ops_->Logits(plan, edges, x, rows, logits);
  }

 private:
  class Timer {
   public:
    explicit Timer(double& total) : total_(total), start_(std::chrono::steady_clock::now()) {}
    ~Timer() {
      total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    double& total_;
    const std::chrono::steady_clock::time_point start_;
  };
  const std::unique_ptr<engine::Ops> ops_;
  Times& times_;
};

}  // namespace baton::bench
