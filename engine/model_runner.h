#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "common/sampling_params.h"
#include "engine/ops/ops.h"

namespace baton::engine {

// After which rows of a sequence the LogitsHook sees the logits. Sampling needs none of it.
enum class LogitRows : std::uint8_t { kNone, kLast, kAll };

// One sequence's part of a step: `tokens` are computed at positions [start_position,
// start_position + tokens.size()), attending to what `block_table` already holds below. It may
// begin with kNoBlock where no layer's window reaches that far back. The spans must stay valid
// during Step.
struct SequenceStep {
  std::span<const std::int32_t> tokens;
  int start_position = 0;
  std::span<const BlockId> block_table;
  LogitRows logits = LogitRows::kNone;
  // Tokens of the request's prompt. Where rope depends on the length of the text (dynamic,
  // longrope), the row at position p is rotated as in a text of max(prompt_length, p + 1) tokens:
  // what a cache filled by one pass over the prompt and a step per token holds, however the prompt
  // is cut here.
  int prompt_length = 0;
  // How to choose the token after the last row; null: none is chosen. Then `prompt` and `output`
  // are the sequence's tokens up to and with that row.
  const SamplingParams* sampling = nullptr;
  std::span<const std::int32_t> prompt;
  std::span<const std::int32_t> output;
};

// Called on the stepping thread with the logits [vocab] after row `row` (0-based within the
// sequence's tokens) of `sequences[index]`, in row order. The span is valid during the call.
using LogitsHook = std::function<void(int index, int row, std::span<float> logits)>;
// Called on the stepping thread with the token sampled after the last row of `sequences[index]`, in
// the order of sequences, once the whole step has succeeded.
using TokenHook = std::function<void(int index, SampledToken token)>;

// What a step tells its caller while it runs; each may be null.
struct StepHooks {
  LayerHook on_layer;
  LogitsHook on_logits;  // without it no logits are shown, whatever SequenceStep::logits says
  TokenHook on_token;    // without it nothing is sampled
};

// A loaded model that computes steps over a KV pool. Not thread-safe: one step at a time.
class ModelRunner {
 public:
  // Loads all weights into `ops`'s form. Both `checkpoint` and `ops` are kept: the checkpoint's
  // mapping must outlive the runner. `max_rows` bounds the rows of a step.
  // `on_progress(done, total)` is called per layer; may be null.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Load(
      std::shared_ptr<const checkpoint::Checkpoint> checkpoint, ModelPlan plan,
      std::unique_ptr<Ops> ops, int max_rows, const std::function<void(int, int)>& on_progress);

  // Computes one step.
  //   kInvalidArgument  no rows, more than max_rows, a token id outside the vocabulary, a position
  //                     beyond the context, a block table too short, or another model's KV pool
  // After a failure nothing writes to `kv` any more; what the step's slots hold is undefined.
  absl::Status Step(std::span<const SequenceStep> sequences, KvPool& kv, const StepHooks& hooks);

  // As Ops says.
  absl::StatusOr<std::unique_ptr<KvPool>> NewKvPool(const KvLayout& layout, int num_blocks) {
    return ops_->NewKvPool(layout, num_blocks);
  }
  absl::StatusOr<std::optional<std::uint64_t>> KvMemoryLeft() const { return ops_->KvMemoryLeft(); }

  // What Step refuses before it computes anything.
  absl::Status CheckStep(std::span<const SequenceStep> sequences, const KvPool& kv) const;

  const ModelPlan& plan() const { return plan_; }
  int max_rows() const { return max_rows_; }
  KvLayout MakeKvLayout(int block_size, KvDType dtype) const;

 private:
  ModelRunner(std::shared_ptr<const checkpoint::Checkpoint> checkpoint, ModelPlan plan,
              std::unique_ptr<Ops> ops, int max_rows);
  absl::Status Compute(std::span<const SequenceStep> sequences, const StepInput& input, KvPool& kv,
                       const StepHooks& hooks);
  absl::Status RunLayers(const RaggedBatch& batch, KvPool& kv, const LayerHook& on_layer);
  absl::Status RunLogits(std::span<const SequenceStep> sequences, int num_rows,
                         const LogitsHook& on_logits);

  const std::shared_ptr<const checkpoint::Checkpoint> checkpoint_;
  const ModelPlan plan_;
  const std::unique_ptr<Ops> ops_;
  const int max_rows_;
  std::unique_ptr<EdgeWeights> edges_;
  std::vector<std::unique_ptr<LayerWeights>> layers_;
  std::unique_ptr<MatrixBuffer> x_, q_, attention_;
  RopeAngleBuffer angles_;
  std::vector<float> logits_;         // a few rows at a time
  std::vector<SampledToken> tokens_;  // of the step
};

}  // namespace baton::engine
