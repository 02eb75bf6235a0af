#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/sliding_window.h"
#include "engine/model_runner.h"
#include "engine/sampling/sampler.h"
#include "worker/scheduler.h"

namespace baton {

// A "model" whose logits are a hash of every token that a row sees, read back from a pool of "KV
// blocks" of plain tokens through the block table: a lost, stale or foreign block changes
// everything that follows. Each slot also holds the length of the text that its row stood in, as a
// rope that depends on it would. Does what engine::ModelRunner::Step promises. Not thread-safe.
class FakeStepModel final : public worker::StepRunner {
 public:
  // A row sees `window` tokens, its own included; 0: all.
  FakeStepModel(int num_blocks, int block_size, int vocab_size, int max_rows, int num_layers = 1,
                int window = 0)
      : block_size_(block_size),
        vocab_size_(vocab_size),
        max_rows_(max_rows),
        num_layers_(num_layers),
        window_(window),
        slots_(static_cast<std::size_t>(num_blocks * block_size)) {}

  // What the model says after `context`, of which the first `prompt_length` tokens are the prompt.
  static std::vector<float> LogitsAfter(std::span<const std::int32_t> context, int prompt_length,
                                        int vocab_size, int window = 0) {
    std::vector<Slot> seen;
    const int size = static_cast<int>(context.size());
    for (int position = FirstVisible(window, size - 1); position < size; ++position) {
      seen.push_back(SlotOf(context[static_cast<std::size_t>(position)], position, prompt_length));
    }
    return LogitsOf(seen, vocab_size);
  }

  // The output of a request that has the model to itself.
  static std::vector<SampledToken> OutputAlone(const SamplingParams& sampling,
                                               const std::vector<std::int32_t>& prompt,
                                               int vocab_size, int max_context, int window = 0) {
    engine::Sampler sampler;
    std::vector<std::int32_t> tokens = prompt;
    std::vector<SampledToken> output;
    const auto so_far = [&] { return std::span(tokens).subspan(prompt.size()); };
    do {
      std::vector<float> logits =
          LogitsAfter(tokens, static_cast<int>(prompt.size()), vocab_size, window);
      output.push_back(sampler.Sample(sampling, prompt, so_far(), logits));
      tokens.push_back(output.back().token);
    } while (engine::CheckFinish(sampling, static_cast<int>(prompt.size()), so_far(),
                                 max_context) == FinishReason::kNone);
    return output;
  }

  absl::Status Step(std::span<const engine::SequenceStep> sequences,
                    const engine::StepHooks& hooks) override {
    if (absl::Status status = std::exchange(next_failure_, absl::OkStatus()); !status.ok()) {
      return status;
    }
    int rows = 0;
    for (const engine::SequenceStep& step : sequences) {
      rows += static_cast<int>(step.tokens.size());
      if (absl::Status status = CheckStep(step); !status.ok()) return status;
      for (std::size_t i = 0; i < step.tokens.size(); ++i) {
        const int position = step.start_position + static_cast<int>(i);
        *At(step.block_table, position) = SlotOf(step.tokens[i], position, step.prompt_length);
      }
    }
    if (rows == 0 || rows > max_rows_) {
      return absl::InvalidArgumentError(absl::StrFormat("%d rows, limit %d", rows, max_rows_));
    }
    if (hooks.on_layer) {
      for (int layer = 0; layer < num_layers_; ++layer) hooks.on_layer(layer);
    }
    if (hooks.on_logits) GiveLogits(sequences, hooks.on_logits);
    if (hooks.on_token) GiveTokens(sequences, hooks.on_token);
    return absl::OkStatus();
  }

  // Writes `tokens` as a prefill worker's transfer would, from position `first` of a prompt of
  // `prompt_length`, but for those that `blocks` has no block for.
  void Write(std::span<const engine::BlockId> blocks, int first,
             std::span<const std::int32_t> tokens, int prompt_length) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const int position = first + static_cast<int>(i);
      if (blocks[static_cast<std::size_t>(position / block_size_)] == engine::kNoBlock) continue;
      *At(blocks, position) = SlotOf(tokens[i], position, prompt_length);
    }
  }
  // Answers the next step with `status`, computing nothing.
  void FailNextStep(absl::Status status) { next_failure_ = std::move(status); }

 private:
  struct Slot {
    std::int32_t token = -1;
    int text_length = -1;
  };
  static Slot SlotOf(std::int32_t token, int position, int prompt_length) {
    return {token, std::max(prompt_length, position + 1)};
  }
  static std::vector<float> LogitsOf(std::span<const Slot> seen, int vocab_size) {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (const Slot& slot : seen) {
      hash = Mix(hash ^ static_cast<std::uint64_t>(slot.token));
      hash = Mix(hash ^ static_cast<std::uint64_t>(slot.text_length));
    }
    std::vector<float> logits(static_cast<std::size_t>(vocab_size));
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(Mix(hash + i) >> 40) / (1 << 21);  // 0..8
    }
    return logits;
  }
  static std::uint64_t Mix(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  absl::Status CheckStep(const engine::SequenceStep& step) const {
    const int end = step.start_position + static_cast<int>(step.tokens.size());
    const int capacity = static_cast<int>(step.block_table.size()) * block_size_;
    if (step.tokens.empty() || end > capacity) {
      return absl::InvalidArgumentError(
          absl::StrFormat("positions %d..%d in %d slots", step.start_position, end, capacity));
    }
    const int first = FirstVisible(window_, step.start_position) / block_size_;
    for (int i = first; i < (end + block_size_ - 1) / block_size_; ++i) {
      if (step.block_table[static_cast<std::size_t>(i)] == engine::kNoBlock) {
        return absl::InvalidArgumentError(
            absl::StrFormat("no block %d for positions %d..%d", i, step.start_position, end));
      }
    }
    for (const std::int32_t token : step.tokens) {
      if (token < 0 || token >= vocab_size_) {
        return absl::InvalidArgumentError(absl::StrFormat("token %d", token));
      }
    }
    return absl::OkStatus();
  }

  Slot* At(std::span<const engine::BlockId> blocks, int position) {
    const auto block = static_cast<std::size_t>(position / block_size_);
    return &slots_[static_cast<std::size_t>(blocks[block] * block_size_ + position % block_size_)];
  }

  void GiveLogits(std::span<const engine::SequenceStep> sequences,
                  const engine::LogitsHook& on_logits) {
    for (std::size_t index = 0; index < sequences.size(); ++index) {
      const engine::SequenceStep& step = sequences[index];
      const int rows = static_cast<int>(step.tokens.size());
      if (step.logits == engine::LogitRows::kNone) continue;
      for (int row = step.logits == engine::LogitRows::kAll ? 0 : rows - 1; row < rows; ++row) {
        std::vector<float> logits = LogitsAfterRow(step, row);
        on_logits(static_cast<int>(index), row, logits);
      }
    }
  }

  void GiveTokens(std::span<const engine::SequenceStep> sequences,
                  const engine::TokenHook& on_token) {
    for (std::size_t index = 0; index < sequences.size(); ++index) {
      const engine::SequenceStep& step = sequences[index];
      if (step.sampling == nullptr) continue;
      std::vector<float> logits = LogitsAfterRow(step, static_cast<int>(step.tokens.size()) - 1);
      on_token(static_cast<int>(index),
               sampler_.Sample(*step.sampling, step.prompt, step.output, logits));
    }
  }

  std::vector<float> LogitsAfterRow(const engine::SequenceStep& step, int row) {
    std::vector<Slot> seen;
    const int last = step.start_position + row;
    for (int position = FirstVisible(window_, last); position <= last; ++position) {
      seen.push_back(*At(step.block_table, position));
    }
    return LogitsOf(seen, vocab_size_);
  }

  const int block_size_;
  const int vocab_size_;
  const int max_rows_;
  const int num_layers_;
  const int window_;
  std::vector<Slot> slots_;  // [num_blocks * block_size]
  absl::Status next_failure_;
  engine::Sampler sampler_;
};

// What a StepLoop does between two waits: lets `scheduler` tick and runs the step it plans. False
// when it planned none.
inline bool RunOneStep(worker::Scheduler& scheduler, worker::StepRunner& runner) {
  scheduler.Tick();
  const std::span<const engine::SequenceStep> plan = scheduler.PlanStep();
  if (plan.empty()) return false;
  scheduler.FinishStep(runner.Step(plan, worker::HooksOf(scheduler)));
  return true;
}

}  // namespace baton
