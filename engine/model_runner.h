#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "engine/ops/ops.h"

namespace baton::engine {

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
};

// Called on the stepping thread once layer `layer` has written K and V of every row of the step.
using LayerHook = std::function<void(int layer)>;
// Called on the stepping thread with the logits [vocab] after row `row` (0-based within the
// sequence's tokens) of `sequences[index]`, in row order. The span is valid during the call.
using LogitsHook = std::function<void(int index, int row, std::span<float> logits)>;

// A loaded model that computes steps over a KV pool. Not thread-safe: one step at a time.
class ModelRunner {
 public:
  // Loads all weights into `ops`'s form. Both `checkpoint` and `ops` are kept: the checkpoint's
  // mapping must outlive the runner. `max_rows` bounds the rows of a step.
  // `on_progress(done, total)` is called per layer; may be null.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Load(
      std::shared_ptr<const checkpoint::Checkpoint> checkpoint, ModelPlan plan,
      std::unique_ptr<Ops> ops, int max_rows, const std::function<void(int, int)>& on_progress);

  // Computes one step. Either hook may be null (no logits are computed without a LogitsHook).
  //   kInvalidArgument  no rows, more than max_rows, a token id outside the vocabulary, a position
  //                     beyond the context, a block table too short, or another model's KV pool
  absl::Status Step(std::span<const SequenceStep> sequences, KvPool& kv, const LayerHook& on_layer,
                    const LogitsHook& on_logits);

  // What Step refuses before it computes anything.
  absl::Status CheckStep(std::span<const SequenceStep> sequences, const KvPool& kv) const;

  const ModelPlan& plan() const { return plan_; }
  int max_rows() const { return max_rows_; }
  KvLayout MakeKvLayout(int block_size, KvDType dtype) const;

 private:
  ModelRunner(std::shared_ptr<const checkpoint::Checkpoint> checkpoint, ModelPlan plan,
              std::unique_ptr<Ops> ops, int max_rows);
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
  std::vector<float> logits_;  // a few rows at a time
};

}  // namespace baton::engine
