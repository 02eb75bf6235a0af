// Speed of a whole model on the CPU backend beside what the machine can do: prefill against the
// time OpenBLAS's sgemm needs for the same matrix products, decode against the bandwidth of reads.
//   engine_bench MODEL [--threads N] [--compute fast|f32] [--kv f16|f32] [--repeats N] [--quick]
//   [--only prefill|decode]
// Ceilings are measured again beside every line, since the machine may be shared.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bench/ops/ceilings.h"
#include "bench/ops/timed_ops.h"
#include "checkpoint/checkpoint.h"
#include "engine/kv/kv_pool.h"
#include "engine/model_runner.h"

namespace baton::bench {
namespace {

struct Flags {
  std::string model;
  engine::OpsOptions ops{.num_threads = 2};
  engine::KvDType kv = engine::KvDType::kF16;
  int repeats = 3;
  bool quick = false;  // one prompt and one batch only
  std::string only;    // "prefill", "decode" or both
};

bool ParseFlags(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "--quick") {
      flags.quick = true;
      continue;
    }
    if (arg.rfind("--", 0) != 0) {
      flags.model = arg;
      continue;
    }
    ++i;
    if (arg == "--threads") {
      flags.ops.num_threads = std::max(1, std::atoi(value));
    } else if (arg == "--only") {
      flags.only = value;
    } else if (arg == "--repeats") {
      flags.repeats = std::max(1, std::atoi(value));
    } else if (arg == "--compute") {
      flags.ops.compute =
          std::strcmp(value, "f32") == 0 ? engine::ComputeMode::kF32 : engine::ComputeMode::kFast;
    } else if (arg == "--kv") {
      flags.kv = std::strcmp(value, "f32") == 0 ? engine::KvDType::kF32 : engine::KvDType::kF16;
    } else {
      return false;
    }
  }
  return !flags.model.empty();
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class EngineBench {
 public:
  static constexpr int kBlockSize = 16;
  static constexpr int kTokens = 4096;  // room in the KV pool for each of 8 sequences

  absl::Status Load(const Flags& flags) {
    flags_ = flags;
    auto checkpoint = checkpoint::Checkpoint::Open(flags.model);
    if (!checkpoint.ok()) return checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
    auto plan = engine::MakeModelPlan(checkpoint_->metadata(), 0);
    if (!plan.ok()) return plan.status();
    const double start = Now();
    auto runner = engine::ModelRunner::Load(
        checkpoint_, *std::move(plan),
        std::make_unique<TimedOps>(engine::MakeCpuOps(flags.ops), times_), 2048, nullptr);
    if (!runner.ok()) return runner.status();
    runner_ = *std::move(runner);
    std::printf("loaded in %.2f s\n", Now() - start);
    auto pool = engine::KvPool::Create(runner_->MakeKvLayout(kBlockSize, flags.kv),
                                       8 * kTokens / kBlockSize);
    if (!pool.ok()) return pool.status();
    kv_ = *std::move(pool);
    blocks_.resize(kv_->num_blocks());
    std::iota(blocks_.begin(), blocks_.end(), 0);
    return absl::OkStatus();
  }

  // A prompt of `num_tokens` in one step; prints the best of the repeats.
  void Prefill(int num_tokens, Ceilings& ceilings) {
    const std::vector<std::int32_t> tokens = Tokens(num_tokens);
    const engine::SequenceStep step{
        .tokens = tokens, .block_table = Table(0), .logits = engine::LogitRows::kLast};
    double best = 1e9;
    double best_sgemm = 1e9;
    TimedOps::Times times{};
    for (int repeat = 0; repeat <= flags_.repeats; ++repeat) {
      times_ = {};
      const double seconds = Run({step});
      if (repeat > 0 && seconds < best) {
        best = seconds;
        times = times_;
      }
      best_sgemm = std::min(best_sgemm, SgemmSeconds(num_tokens, ceilings));
    }
    const double flop = 2.0 * LayerWeights() * num_tokens;
    std::printf(
        "prefill %5d: %8.1f tok/s  %6.1f GFLOP/s of matrix products; sgemm %8.1f tok/s, "
        "%6.1f GFLOP/s; %.2f of it\n",
        num_tokens, num_tokens / best, flop / best / 1e9, num_tokens / best_sgemm,
        flop / best_sgemm / 1e9, best_sgemm / best);
    PrintTimes(times, best);
  }

  // Steps of one token for each of `batch` sequences with `context` tokens before them.
  void Decode(int batch, int context, Ceilings& ceilings) {
    constexpr int kSteps = 16;
    const std::vector<std::int32_t> prompt = Tokens(context);
    std::vector<engine::SequenceStep> prompts;
    for (int i = 0; i < batch; ++i) prompts.push_back({.tokens = prompt, .block_table = Table(i)});
    for (const engine::SequenceStep& one : prompts) Run({one});
    double best = 1e9;
    double bandwidth = 0;
    TimedOps::Times times{};
    const std::vector<std::int32_t> token = Tokens(1);
    for (int repeat = 0; repeat < flags_.repeats; ++repeat) {
      times_ = {};
      double total = 0;
      for (int i = 0; i < kSteps; ++i) {
        std::vector<engine::SequenceStep> steps = prompts;
        for (engine::SequenceStep& step : steps) {
          step.tokens = token;
          step.start_position = context + i;
          step.logits = engine::LogitRows::kLast;
        }
        total += Run(steps);
      }
      if (total / kSteps < best) {
        best = total / kSteps;
        times = times_;
      }
      bandwidth = std::max(bandwidth, ceilings.ReadBandwidth(2));
    }
    for (double& time : times) time /= kSteps;
    const double bytes = WeightBytes();
    std::printf(
        "decode batch %2d at %4d: %7.1f tok/s  %6.2f ms a step, weights at %5.1f GB/s; "
        "reads %5.1f GB/s; %.2f of it\n",
        batch, context, batch / best, best * 1e3, bytes / best / 1e9, bandwidth / 1e9,
        bytes / best / bandwidth);
    PrintTimes(times, best);
  }

 private:
  std::vector<std::int32_t> Tokens(int count) const {
    std::vector<std::int32_t> tokens(count);
    for (int i = 0; i < count; ++i) {
      tokens[i] = static_cast<std::int32_t>((i * 7919LL + 13) % runner_->plan().vocab_size);
    }
    return tokens;
  }
  std::span<const engine::BlockId> Table(int sequence) const {
    return std::span(blocks_).subspan(sequence * kTokens / kBlockSize, kTokens / kBlockSize);
  }
  double Run(const std::vector<engine::SequenceStep>& steps) {
    const double start = Now();
    const absl::Status status =
        runner_->Step(steps, *kv_, {.on_logits = [](int, int, std::span<float>) {}});
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      std::exit(1);
    }
    return Now() - start;
  }
  double SgemmSeconds(int rows, Ceilings& ceilings) const {
    const engine::LayerPlan& layer = runner_->plan().layers[0];
    return ceilings.SgemmLayerSeconds(
               rows, runner_->plan().hidden_size, layer.num_heads * layer.head_dim,
               layer.num_kv_heads * layer.head_dim, layer.intermediate_size, 2) *
           static_cast<double>(runner_->plan().layers.size());
  }
  // Elements of the layers' matrices, and bytes a decoded token reads as they lie in the file.
  double LayerWeights() const {
    double count = 0;
    for (const auto& [name, tensor] : checkpoint_->tensors()) {
      if (name.rfind("layers.", 0) == 0)
        count += static_cast<double>(tensor.rows() * tensor.columns());
    }
    return count;
  }
  double WeightBytes() const {
    double bytes = 0;
    const bool tied = runner_->plan().tied_embeddings;
    for (const auto& [name, tensor] : checkpoint_->tensors()) {
      if (tied || name != "token_embedding.weight")
        bytes += static_cast<double>(tensor.data.size());
    }
    return bytes;
  }
  void PrintTimes(const TimedOps::Times& times, double total) const {
    std::printf("   ");
    for (int i = 0; i < TimedOps::kNumOperations; ++i) {
      std::printf(" %s %.3f ms (%.0f%%)", TimedOps::kNames[i], times[i] * 1e3,
                  100 * times[i] / total);
    }
    std::printf("\n");
  }

  Flags flags_;
  TimedOps::Times times_{};
  std::shared_ptr<const checkpoint::Checkpoint> checkpoint_;
  std::unique_ptr<engine::ModelRunner> runner_;
  std::unique_ptr<engine::KvPool> kv_;
  std::vector<engine::BlockId> blocks_;
};

int Main(int argc, char** argv) {
  Flags flags;
  if (!ParseFlags(argc, argv, flags)) {
    std::fprintf(stderr,
                 "usage: engine_bench MODEL [--threads N] [--compute fast|f32] [--kv f16|f32] "
                 "[--repeats N] [--quick] [--only prefill|decode]\n");
    return 2;
  }
  EngineBench bench;
  if (const absl::Status status = bench.Load(flags); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  Ceilings ceilings(flags.ops.num_threads);
  std::printf("reads %.1f GB/s, sgemm 1024^3 %.1f GFLOP/s, %d threads\n",
              ceilings.ReadBandwidth(3) / 1e9, ceilings.SgemmRate(1024, 1024, 1024, 3) / 1e9,
              flags.ops.num_threads);
  for (const int tokens : {128, 512, 2048}) {
    if (flags.only != "decode" && (!flags.quick || tokens == 512)) bench.Prefill(tokens, ceilings);
  }
  if (flags.only == "prefill") return 0;
  bench.Decode(1, 64, ceilings);
  if (flags.quick) return 0;
  if (flags.ops.num_threads > 1) bench.Decode(8, 64, ceilings);
  bench.Decode(1, 2000, ceilings);
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
