#include "engine/model_runner.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "engine/sampling/host_sampling.h"

namespace baton::engine {
namespace {

// The first position that any layer's row at `position` sees.
int FirstVisibleAnywhere(const ModelPlan& plan, int position) {
  int first = position;
  for (const LayerPlan& layer : plan.layers) first = std::min(first, layer.FirstVisible(position));
  return first;
}

absl::Status CheckSequence(const ModelPlan& plan, const KvPool& kv, const SequenceStep& step) {
  if (step.tokens.empty()) return absl::InvalidArgumentError("no tokens to compute");
  for (const std::int32_t token : step.tokens) {
    if (token < 0 || token >= plan.vocab_size) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "token id outside the vocabulary: %d, must be 0..%d", token, plan.vocab_size - 1));
    }
  }
  const std::int64_t end =
      std::int64_t{step.start_position} + static_cast<std::int64_t>(step.tokens.size());
  if (step.start_position < 0 || end > plan.max_context) {
    return absl::InvalidArgumentError(
        absl::StrFormat("position out of range: %d tokens from position %d, context %d",
                        step.tokens.size(), step.start_position, plan.max_context));
  }
  const int num_needed = kv.layout().BlocksFor(static_cast<int>(end));
  if (static_cast<int>(step.block_table.size()) < num_needed) {
    return absl::InvalidArgumentError(
        absl::StrFormat("block table too short: %d blocks for %d positions, need %d",
                        step.block_table.size(), end, num_needed));
  }
  const int first_visible =
      FirstVisibleAnywhere(plan, step.start_position) / kv.layout().block_size;
  for (int i = 0; i < num_needed; ++i) {
    const BlockId block = step.block_table[i];
    if (block == kNoBlock && i < first_visible) continue;
    if (block < 0 || block >= kv.num_blocks()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("block id out of range: %d at place %d, must be 0..%d, or none below %d",
                          block, i, kv.num_blocks() - 1, first_visible));
    }
  }
  return absl::OkStatus();
}

// A RaggedBatch, its sampled rows, and the memory behind them.
struct StepRows {
  std::vector<std::int32_t> tokens, positions, text_lengths;
  std::vector<BatchSequence> sequences;
  std::vector<SampledRow> samples;
};

StepRows MakeRows(std::span<const SequenceStep> steps, bool samples) {
  StepRows rows;
  for (const SequenceStep& step : steps) {
    const int first_row = static_cast<int>(rows.tokens.size());
    const int num_rows = static_cast<int>(step.tokens.size());
    rows.sequences.push_back({.first_row = first_row,
                              .num_rows = num_rows,
                              .start_position = step.start_position,
                              .block_table = step.block_table});
    rows.tokens.insert(rows.tokens.end(), step.tokens.begin(), step.tokens.end());
    for (int i = 0; i < num_rows; ++i) {
      const int position = step.start_position + i;
      rows.positions.push_back(position);
      rows.text_lengths.push_back(std::max(step.prompt_length, position + 1));
    }
    if (step.sampling == nullptr || !samples) continue;
    rows.samples.push_back({.row = first_row + num_rows - 1,
                            .params = step.sampling,
                            .prompt = step.prompt,
                            .output = step.output});
  }
  return rows;
}

// A row of the batch whose logits someone wants: row `row` of sequence `index`.
struct WantedLogits {
  int index;
  int row;
};

void CollectWanted(std::span<const SequenceStep> steps, std::vector<WantedLogits>& wanted,
                   std::vector<std::int32_t>& batch_rows) {
  int first_row = 0;
  for (int index = 0; index < static_cast<int>(steps.size()); ++index) {
    const int num_rows = static_cast<int>(steps[index].tokens.size());
    const int begin = steps[index].logits == LogitRows::kAll    ? 0
                      : steps[index].logits == LogitRows::kLast ? num_rows - 1
                                                                : num_rows;
    for (int row = begin; row < num_rows; ++row) {
      wanted.push_back({index, row});
      batch_rows.push_back(first_row + row);
    }
    first_row += num_rows;
  }
}

bool WantsLogits(std::span<const SequenceStep> steps, const StepHooks& hooks) {
  return hooks.on_logits != nullptr &&
         std::any_of(steps.begin(), steps.end(),
                     [](const SequenceStep& step) { return step.logits != LogitRows::kNone; });
}

}  // namespace

ModelRunner::ModelRunner(std::shared_ptr<const checkpoint::Checkpoint> checkpoint, ModelPlan plan,
                         std::unique_ptr<Ops> ops, int max_rows)
    : checkpoint_(std::move(checkpoint)),
      plan_(std::move(plan)),
      ops_(std::move(ops)),
      max_rows_(max_rows) {}

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Load(
    std::shared_ptr<const checkpoint::Checkpoint> checkpoint, ModelPlan plan,
    std::unique_ptr<Ops> ops, int max_rows, const std::function<void(int, int)>& on_progress) {
  if (max_rows <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rows of a step out of range: %d, must be positive", max_rows));
  }
  if (plan.layers.empty() || plan.vocab_size <= 0) {
    return absl::InvalidArgumentError("a model plan without layers or vocabulary");
  }
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(std::move(checkpoint), std::move(plan), std::move(ops), max_rows));
  const ModelPlan& own_plan = runner->plan_;
  BATON_ASSIGN_OR_RETURN(runner->edges_, runner->ops_->LoadEdges(*runner->checkpoint_, own_plan));
  const int num_layers = static_cast<int>(own_plan.layers.size());
  int widest = 0;  // columns of q over all layers
  for (int layer = 0; layer < num_layers; ++layer) {
    BATON_ASSIGN_OR_RETURN(auto weights,
                           runner->ops_->LoadLayer(*runner->checkpoint_, own_plan, layer));
    runner->layers_.push_back(std::move(weights));
    widest = std::max(widest, own_plan.layers[layer].num_heads * own_plan.layers[layer].head_dim);
    if (on_progress) on_progress(layer + 1, num_layers);
  }
  BATON_ASSIGN_OR_RETURN(runner->x_, runner->ops_->NewMatrix(max_rows, own_plan.hidden_size));
  BATON_ASSIGN_OR_RETURN(runner->q_, runner->ops_->NewMatrix(max_rows, widest));
  BATON_ASSIGN_OR_RETURN(runner->attention_, runner->ops_->NewMatrix(max_rows, widest));
  return runner;
}

KvLayout ModelRunner::MakeKvLayout(int block_size, KvDType dtype) const {
  return {.num_layers = static_cast<int>(plan_.layers.size()),
          .num_kv_heads = plan_.layers[0].num_kv_heads,
          .head_dim = plan_.layers[0].head_dim,
          .block_size = block_size,
          .dtype = dtype};
}

absl::Status ModelRunner::Step(std::span<const SequenceStep> sequences, KvPool& kv,
                               const StepHooks& hooks) {
  BATON_RETURN_IF_ERROR(CheckStep(sequences, kv));
  const StepRows rows = MakeRows(sequences, hooks.on_token != nullptr);
  StepInput input{.batch = {.tokens = rows.tokens,
                            .positions = rows.positions,
                            .sequences = rows.sequences,
                            .text_lengths = rows.text_lengths},
                  .samples = rows.samples,
                  .hidden_needed = WantsLogits(sequences, hooks),
                  .layers_watched = hooks.on_layer != nullptr};
  if (ops_->takes_rope_angles()) {
    input.batch.angles = angles_.Compute(plan_.ropes, rows.positions, rows.text_lengths);
  }
  tokens_.resize(rows.samples.size());
  if (absl::Status status = Compute(sequences, input, kv, hooks); !status.ok()) {
    ops_->AbandonStep();
    return status;
  }
  std::size_t sampled = 0;
  for (int index = 0; sampled < tokens_.size(); ++index) {
    if (sequences[index].sampling != nullptr) hooks.on_token(index, std::move(tokens_[sampled++]));
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::Compute(std::span<const SequenceStep> sequences, const StepInput& input,
                                  KvPool& kv, const StepHooks& hooks) {
  const Matrix x = x_->matrix().Rows(input.batch.num_rows());
  BATON_ASSIGN_OR_RETURN(const bool call_by_call, ops_->BeginStep(plan_, input, kv));
  if (call_by_call) {
    BATON_RETURN_IF_ERROR(RunLayers(input.batch, kv, hooks.on_layer));
    if (input.hidden_needed) {
      BATON_RETURN_IF_ERROR(RunLogits(sequences, x.rows, hooks.on_logits));
    }
    BATON_RETURN_IF_ERROR(ops_->Sample(plan_, *edges_, x, input));
  }
  return ops_->EndStep(input, hooks.on_layer, tokens_);
}

absl::Status ModelRunner::CheckStep(std::span<const SequenceStep> sequences,
                                    const KvPool& kv) const {
  const KvLayout& layout = kv.layout();
  if (!(layout == MakeKvLayout(layout.block_size, layout.dtype))) {
    return absl::InvalidArgumentError("the KV pool was made for another model");
  }
  std::size_t num_rows = 0;
  for (std::size_t index = 0; index < sequences.size(); ++index) {
    if (absl::Status status = CheckSequence(plan_, kv, sequences[index]); !status.ok()) {
      return Annotate(status, absl::StrCat("sequence ", index, " of the step"));
    }
    num_rows += sequences[index].tokens.size();
  }
  if (num_rows == 0 || num_rows > static_cast<std::size_t>(max_rows_)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rows of a step out of range: %d, must be 1..%d", num_rows, max_rows_));
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::RunLayers(const RaggedBatch& batch, KvPool& kv,
                                    const LayerHook& on_layer) {
  const Matrix x = x_->matrix().Rows(batch.num_rows());
  BATON_RETURN_IF_ERROR(ops_->Embed(plan_, *edges_, batch, x));
  for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) {
    const int columns = plan_.layers[layer].num_heads * plan_.layers[layer].head_dim;
    const Matrix q{q_->matrix().data, batch.num_rows(), columns};
    const Matrix attention{attention_->matrix().data, batch.num_rows(), columns};
    const LayerWeights& weights = *layers_[layer];
    BATON_RETURN_IF_ERROR(ops_->QkvRopeAppend(plan_, layer, weights, batch, x, kv, q));
    // The layer's KV is complete: whoever sends it can do so under all the work that follows.
    BATON_RETURN_IF_ERROR(ops_->LayerWritten(layer, on_layer));
    BATON_RETURN_IF_ERROR(ops_->PagedAttention(plan_, layer, batch, q, kv, attention));
    BATON_RETURN_IF_ERROR(ops_->AttentionOutput(plan_, layer, weights, attention, x));
    BATON_RETURN_IF_ERROR(ops_->Mlp(plan_, layer, weights, x));
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::RunLogits(std::span<const SequenceStep> sequences, int num_rows,
                                    const LogitsHook& on_logits) {
  std::vector<WantedLogits> wanted;
  std::vector<std::int32_t> batch_rows;
  CollectWanted(sequences, wanted, batch_rows);
  const Matrix x = x_->matrix().Rows(num_rows);
  const std::size_t vocab = plan_.vocab_size;
  const std::size_t at_once =
      std::min<std::size_t>(LogitRowsAtOnce(plan_.vocab_size), wanted.size());
  if (logits_.size() < at_once * vocab) logits_.resize(at_once * vocab);
  for (std::size_t begin = 0; begin < wanted.size(); begin += at_once) {
    const std::size_t count = std::min(at_once, wanted.size() - begin);
    BATON_RETURN_IF_ERROR(ops_->Logits(
        plan_, *edges_, x, std::span(batch_rows).subspan(begin, count), logits_.data()));
    for (std::size_t i = 0; i < count; ++i) {
      const WantedLogits& row = wanted[begin + i];
      on_logits(row.index, row.row, std::span(logits_).subspan(i * vocab, vocab));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::engine
