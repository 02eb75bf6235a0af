#include "tests/support/golden_engine.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace baton::testing {
namespace {

using engine::BlockList;
using engine::LogitRows;
using engine::SequenceStep;

// A sequence on its way: `tokens` are prompt and output so far, of which `num_computed` are done.
struct Live {
  std::vector<std::int32_t> tokens;
  int prompt_length = 0;
  int num_computed = 0;
  BlockList blocks;
  int max_length = 0;
  std::int32_t stop_token = -1;
  bool done = false;
};

// What the live sequences compute next within `max_rows` rows, and which sequence each step is of.
void PlanStep(std::vector<Live>& sequences, int max_rows, std::vector<SequenceStep>& steps,
              std::vector<Live*>& owners) {
  static const SamplingParams greedy{.temperature = 0.0f};
  int rows_left = max_rows;
  for (Live& sequence : sequences) {
    if (sequence.done || rows_left == 0) continue;
    const int waiting = static_cast<int>(sequence.tokens.size()) - sequence.num_computed;
    const int count = std::min(waiting, rows_left);
    steps.push_back({.tokens = std::span(sequence.tokens).subspan(sequence.num_computed, count),
                     .start_position = sequence.num_computed,
                     .block_table = sequence.blocks.ids(),
                     .prompt_length = sequence.prompt_length,
                     .sampling = count == waiting ? &greedy : nullptr,
                     .prompt = std::span(sequence.tokens).first(sequence.prompt_length),
                     .output = std::span(sequence.tokens).subspan(sequence.prompt_length)});
    owners.push_back(&sequence);
    rows_left -= count;
  }
}

}  // namespace

std::string SetupName(const EngineSetup& setup) {
  const char* kv = setup.kv == engine::KvDType::kF16    ? "KvF16"
                   : setup.kv == engine::KvDType::kBF16 ? "KvBF16"
                                                        : "KvF32";
  if (setup.backend == Backend::kReference) return absl::StrCat("Reference", kv);
  if (setup.backend == Backend::kCuda) return absl::StrCat("Cuda", kv);
  const char* compute = setup.compute == engine::ComputeMode::kFast ? "Fast" : "F32";
  return absl::StrCat("Cpu", compute, kv);
}

void PrintTo(const EngineSetup& setup, std::ostream* out) { *out << SetupName(setup); }

absl::StatusOr<std::unique_ptr<engine::Ops>> MakeOps(const EngineSetup& setup,
                                                     const engine::ModelPlan& plan) {
  if (setup.make_ops) return setup.make_ops(setup, plan);
  if (setup.backend == Backend::kReference) return engine::MakeReferenceOps();
  return engine::MakeCpuOps({.compute = setup.compute, .num_threads = setup.num_threads});
}

absl::StatusOr<std::unique_ptr<GoldenEngine>> GoldenEngine::Create(const std::string& model_path,
                                                                   const EngineSetup& setup) {
  BATON_ASSIGN_OR_RETURN(auto checkpoint, checkpoint::Checkpoint::Open(model_path));
  return Create(std::shared_ptr<const checkpoint::Checkpoint>(std::move(checkpoint)), setup);
}

absl::StatusOr<std::unique_ptr<GoldenEngine>> GoldenEngine::Create(
    std::shared_ptr<const checkpoint::Checkpoint> checkpoint, const EngineSetup& setup) {
  std::unique_ptr<GoldenEngine> result(new GoldenEngine());
  BATON_ASSIGN_OR_RETURN(auto plan, engine::MakeModelPlan(checkpoint->metadata(), 0));
  BATON_ASSIGN_OR_RETURN(auto ops, MakeOps(setup, plan));
  BATON_ASSIGN_OR_RETURN(result->runner_,
                         engine::ModelRunner::Load(std::move(checkpoint), std::move(plan),
                                                   std::move(ops), setup.max_rows, nullptr));
  const auto layout = result->runner_->MakeKvLayout(setup.block_size, setup.kv);
  const int num_blocks = layout.BlocksFor(setup.kv_tokens);
  BATON_ASSIGN_OR_RETURN(result->kv_, result->runner_->NewKvPool(layout, num_blocks));
  result->allocator_ = std::make_unique<engine::BlockAllocator>(num_blocks);
  return result;
}

absl::StatusOr<std::vector<std::vector<std::int32_t>>> GoldenEngine::Greedy(
    std::span<const GreedyRequest> requests) {
  std::vector<Live> sequences(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const GreedyRequest& request = requests[i];
    sequences[i].tokens.assign(request.prompt.begin(), request.prompt.end());
    sequences[i].prompt_length = static_cast<int>(request.prompt.size());
    sequences[i].max_length = static_cast<int>(request.prompt.size()) + request.max_tokens;
    sequences[i].stop_token = request.stop_token;
    BATON_ASSIGN_OR_RETURN(sequences[i].blocks,
                           allocator_->Allocate(kv_->layout().BlocksFor(sequences[i].max_length)));
  }
  for (;;) {
    std::vector<SequenceStep> steps;
    std::vector<Live*> owners;
    PlanStep(sequences, runner_->max_rows(), steps, owners);
    if (steps.empty()) break;
    std::vector<std::int32_t> sampled(steps.size(), -1);
    BATON_RETURN_IF_ERROR(runner_->Step(
        steps, *kv_,
        {.on_token = [&](int index, SampledToken token) { sampled[index] = token.token; }}));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      Live& sequence = *owners[i];
      sequence.num_computed += static_cast<int>(steps[i].tokens.size());
      if (sampled[i] < 0) continue;
      sequence.tokens.push_back(sampled[i]);
      sequence.done = sampled[i] == sequence.stop_token ||
                      static_cast<int>(sequence.tokens.size()) >= sequence.max_length;
    }
  }
  std::vector<std::vector<std::int32_t>> outputs;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& tokens = sequences[i].tokens;
    outputs.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(requests[i].prompt.size()),
                         tokens.end());
  }
  return outputs;
}

absl::Status GoldenEngine::Forced(
    std::span<const std::int32_t> tokens, int first,
    const std::function<void(int position, std::span<const float> logits)>& on_logits,
    int prompt_length) {
  const int length = static_cast<int>(tokens.size());
  BATON_ASSIGN_OR_RETURN(const BlockList blocks,
                         allocator_->Allocate(kv_->layout().BlocksFor(length)));
  for (int start = 0; start < length;) {
    // Steps end where logits begin to be wanted, so that none are made for nothing.
    const int limit = start < first ? std::min(first, length) : length;
    const int count = std::min(runner_->max_rows(), limit - start);
    const SequenceStep step{.tokens = tokens.subspan(start, count),
                            .start_position = start,
                            .block_table = blocks.ids(),
                            .logits = start >= first ? LogitRows::kAll : LogitRows::kNone,
                            .prompt_length = prompt_length};
    BATON_RETURN_IF_ERROR(
        runner_->Step(std::span(&step, 1), *kv_,
                      {.on_logits = [&](int /*index*/, int row, std::span<float> logits) {
                        on_logits(start + row, logits);
                      }}));
    start += count;
  }
  return absl::OkStatus();
}

}  // namespace baton::testing
