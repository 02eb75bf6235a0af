#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "engine/kv/block_allocator.h"
#include "engine/kv/kv_pool.h"
#include "engine/model_runner.h"
#include "engine/ops/ops.h"

namespace baton::testing {

// kCuda: of tests that set EngineSetup::make_ops, which link that backend; see cuda_setups.h.
enum class Backend : std::uint8_t { kReference, kCpu, kCuda };

struct EngineSetup;
using OpsMaker = std::function<absl::StatusOr<std::unique_ptr<engine::Ops>>(
    const EngineSetup&, const engine::ModelPlan&)>;

// Which arithmetic to judge.
struct EngineSetup {
  Backend backend = Backend::kReference;
  engine::ComputeMode compute = engine::ComputeMode::kF32;  // the reference ignores it
  engine::KvDType kv = engine::KvDType::kF32;
  int num_threads = 1;
  int block_size = 16;
  int max_rows = 512;      // of a step
  int kv_tokens = 16384;   // room in the pool
  int max_sequences = 16;  // of a step; kCuda
  bool graphs = true;      // kCuda
  OpsMaker make_ops;       // null: reference and CPU, which every test links
};
std::string SetupName(const EngineSetup& setup);            // "ReferenceKvF32", "CpuFastKvF16", ...
void PrintTo(const EngineSetup& setup, std::ostream* out);  // for GoogleTest

absl::StatusOr<std::unique_ptr<engine::Ops>> MakeOps(const EngineSetup& setup,
                                                     const engine::ModelPlan& plan);

// A loaded model and a KV pool with the simplest ways to use them: no scheduler, no preemption.
class GoldenEngine {
 public:
  static absl::StatusOr<std::unique_ptr<GoldenEngine>> Create(const std::string& model_path,
                                                              const EngineSetup& setup);
  static absl::StatusOr<std::unique_ptr<GoldenEngine>> Create(
      std::shared_ptr<const checkpoint::Checkpoint> checkpoint, const EngineSetup& setup);

  engine::ModelRunner& runner() { return *runner_; }
  engine::KvPool& kv() { return *kv_; }
  engine::BlockAllocator& allocator() { return *allocator_; }

  // Greedy tokens after each prompt, computed together in mixed steps: `max_tokens` of them, or up
  // to and with `stop_token`.
  struct GreedyRequest {
    std::span<const std::int32_t> prompt;
    int max_tokens = 0;
    std::int32_t stop_token = -1;
  };
  absl::StatusOr<std::vector<std::vector<std::int32_t>>> Greedy(
      std::span<const GreedyRequest> requests);

  // Computes `tokens` as one sequence in steps of max_rows and shows the logits after each position
  // from `first` on. `prompt_length`: as SequenceStep says.
  absl::Status Forced(
      std::span<const std::int32_t> tokens, int first,
      const std::function<void(int position, std::span<const float> logits)>& on_logits,
      int prompt_length = 0);

 private:
  GoldenEngine() = default;
  std::unique_ptr<engine::ModelRunner> runner_;
  std::unique_ptr<engine::KvPool> kv_;
  std::unique_ptr<engine::BlockAllocator> allocator_;
};

}  // namespace baton::testing
