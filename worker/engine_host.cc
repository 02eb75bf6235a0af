#include "worker/engine_host.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/status.h"
#include "engine/model/model_plan.h"
#include "engine/ops/ops.h"
#include "worker/cuda_settings.h"
#include "worker/rank_group_loader.h"

namespace baton::worker {
namespace {

// What a sequence is expected to need when nothing is configured, in tokens.
constexpr int kUsualContext = 2048;

std::uint64_t MachineBytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

absl::StatusOr<engine::KvDType> ChooseKvDType(const WorkerConfig& config,
                                              const checkpoint::Checkpoint& checkpoint) {
  if (config.backend == "cuda") return ChooseCudaType(config, checkpoint);
  if (config.kv_dtype == "bf16") {
    return absl::InvalidArgumentError(absl::StrCat("kv-dtype bf16 with backend ", config.backend,
                                                   ", which keeps KV in f16 or f32"));
  }
  if (config.kv_dtype == "f16") return engine::KvDType::kF16;
  if (config.kv_dtype == "f32") return engine::KvDType::kF32;
  return ComputesInF32(config) ? engine::KvDType::kF32 : engine::KvDType::kF16;
}

// Names the arithmetic. The reference sums in its own order, and so do each instruction set of the
// CPU backend and each architecture of devices: their blocks differ in bits.
absl::StatusOr<std::string> ComputeName(const WorkerConfig& config, engine::KvDType kv_dtype) {
  if (config.backend == "cuda") return CudaComputeName(config, kv_dtype);
  if (config.backend == "reference") return std::string("reference");
  return absl::StrCat(
      ComputesInF32(config) ? "f32 " : "fast ",
      absl::string_view(engine::CpuInstructionSet().data(), engine::CpuInstructionSet().size()));
}

absl::StatusOr<ModelFingerprint> MakeFingerprint(const WorkerConfig& config,
                                                 const checkpoint::Checkpoint& checkpoint,
                                                 const engine::ModelPlan& plan,
                                                 const engine::KvLayout& layout) {
  ModelFingerprint fingerprint;
  fingerprint.model = checkpoint.fingerprint();
  BATON_ASSIGN_OR_RETURN(fingerprint.compute, ComputeName(config, layout.dtype));
  fingerprint.kv_dtype = std::string(engine::KvDTypeName(layout.dtype));
  fingerprint.num_layers = layout.num_layers;
  fingerprint.num_kv_heads = plan.layers[0].num_kv_heads;  // of all ranks
  fingerprint.head_dim = layout.head_dim;
  for (const engine::LayerPlan& layer : plan.layers) fingerprint.windows.push_back(layer.window);
  const auto& windows = fingerprint.windows;
  if (std::count(windows.begin(), windows.end(), 0) == layout.num_layers) {
    fingerprint.windows.clear();
  }
  return fingerprint;
}

// The shape of a block over all ranks, heads that several of them hold counted for each.
engine::KvLayout LayoutOfAll(const engine::RankGroup& ranks, int block_size,
                             engine::KvDType dtype) {
  engine::KvLayout layout = ranks.runner(0).MakeKvLayout(block_size, dtype);
  for (int rank = 1; rank < ranks.world_size(); ++rank) {
    layout.num_kv_heads += ranks.runner(rank).MakeKvLayout(block_size, dtype).num_kv_heads;
  }
  return layout;
}

// Logs at every tenth of the layers.
void LogProgress(int done, int total) {
  if (done * 10 / total == (done - 1) * 10 / total) return;
  log::Info("loading model", {{"layers", done}, {"of", total}});
}

// The memory left for KV blocks over all ranks, as far as every rank has room for its part of each;
// none where pools lie in the host's memory.
absl::StatusOr<std::optional<std::uint64_t>> MemoryLeft(const engine::RankGroup& ranks,
                                                        const engine::KvLayout& of_all) {
  std::optional<std::uint64_t> least;
  for (int rank = 0; rank < ranks.world_size(); ++rank) {
    const engine::ModelRunner& runner = ranks.runner(rank);
    BATON_ASSIGN_OR_RETURN(const auto own, runner.KvMemoryLeft());
    if (!own.has_value()) continue;
    const std::size_t block = runner.MakeKvLayout(of_all.block_size, of_all.dtype).block_bytes();
    const std::uint64_t all = *own / block * of_all.block_bytes();
    least = std::min(least.value_or(all), all);
  }
  return least;
}

// ChooseNumBlocks, of a backend's own memory all that is left of its share.
absl::StatusOr<int> BlocksOf(WorkerConfig config, const engine::KvLayout& layout,
                             const engine::RankGroup& ranks) {
  BATON_ASSIGN_OR_RETURN(const auto own, MemoryLeft(ranks, layout));
  if (own.has_value() && config.kv_memory == 0) {
    config.kv_memory = static_cast<std::int64_t>(*own);
  }
  auto blocks = ChooseNumBlocks(config, layout, ranks.runner(0).plan().max_context, MachineBytes());
  if (!blocks.ok() && own.has_value()) {
    return Annotate(blocks.status(), "what gpu-memory-utilization leaves for the KV pool");
  }
  return blocks;
}

// Runs `load` on a thread of the given niceness, which the compute threads it starts inherit.
template <class Load>
auto RunNicely(int nice, Load load) {
  decltype(load()) result = absl::UnknownError("not run");
  std::thread thread([&] {
    if (nice != 0 && setpriority(PRIO_PROCESS, 0, nice) != 0) {
      log::Warn("cannot set the niceness of the compute threads", {{"nice", nice}});
    }
    result = load();
  });
  thread.join();
  return result;
}

}  // namespace

absl::StatusOr<int> ChooseNumBlocks(const WorkerConfig& config, const engine::KvLayout& layout,
                                    int max_context, std::uint64_t machine_bytes) {
  if (config.kv_blocks > 0) return config.kv_blocks;
  const std::uint64_t bytes = layout.block_bytes() * static_cast<std::uint64_t>(layout.num_layers);
  std::uint64_t blocks;
  if (config.kv_memory > 0) {
    blocks = static_cast<std::uint64_t>(config.kv_memory) / bytes;
    if (blocks == 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("kv-memory too small: %d bytes, one block of %d tokens takes %d",
                          config.kv_memory, layout.block_size, bytes));
    }
  } else {
    const auto usual = static_cast<std::uint64_t>(config.max_num_seqs) *
                       layout.BlocksFor(std::min(max_context, kUsualContext));
    const std::uint64_t affordable = machine_bytes / 4 / bytes;
    const auto longest = static_cast<std::uint64_t>(layout.BlocksFor(max_context));
    blocks = std::min(usual, affordable);
    if (blocks < longest) blocks = std::min(longest, machine_bytes / 2 / bytes);
    blocks = std::max<std::uint64_t>(blocks, 1);
  }
  return static_cast<int>(std::min<std::uint64_t>(blocks, 1 << 24));
}

EngineHost::EngineHost(std::shared_ptr<const checkpoint::Checkpoint> checkpoint,
                       engine::ModelPlan plan, std::unique_ptr<engine::RankGroup> ranks,
                       ModelFingerprint fingerprint, std::string model_name)
    : checkpoint_(std::move(checkpoint)),
      plan_(std::move(plan)),
      ranks_(std::move(ranks)),
      allocator_(ranks_->kv(0).num_blocks()),
      fingerprint_(std::move(fingerprint)),
      model_name_(std::move(model_name)) {}

absl::StatusOr<std::unique_ptr<EngineHost>> EngineHost::Create(const WorkerConfig& config) {
  const absl::Time begin = absl::Now();
  log::Info("opening model", {{"path", config.model}});
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const checkpoint::Checkpoint> checkpoint,
                         checkpoint::Checkpoint::Open(config.model));
  auto plan = engine::MakeModelPlan(checkpoint->metadata(), config.max_model_len);
  if (!plan.ok()) return Annotate(plan.status(), config.model);
  const int max_rows = std::max(config.max_num_batched_tokens, config.max_num_seqs);
  BATON_ASSIGN_OR_RETURN(const engine::KvDType kv_dtype, ChooseKvDType(config, *checkpoint));
  auto ranks = RunNicely(
      config.nice, [&] { return LoadRankGroup(config, checkpoint, *plan, max_rows, LogProgress); });
  if (!ranks.ok()) return Annotate(ranks.status(), config.model);
  const engine::KvLayout layout = LayoutOfAll(**ranks, config.block_size, kv_dtype);
  BATON_ASSIGN_OR_RETURN(const int num_blocks, BlocksOf(config, layout, **ranks));
  BATON_RETURN_IF_ERROR((*ranks)->MakeKvPools(config.block_size, layout.dtype, num_blocks));
  BATON_ASSIGN_OR_RETURN(ModelFingerprint fingerprint,
                         MakeFingerprint(config, *checkpoint, *plan, layout));
  std::string name =
      config.served_model_name.empty() ? checkpoint->metadata().name : config.served_model_name;
  log::Info("model loaded", {{"model", name},
                             {"seconds", absl::ToDoubleSeconds(absl::Now() - begin)},
                             {"compute", fingerprint.compute},
                             {"ranks", config.tensor_parallel_size},
                             {"kv_dtype", fingerprint.kv_dtype},
                             {"max_context", plan->max_context},
                             {"kv_blocks", num_blocks},
                             {"kv_bytes", layout.block_bytes() * layout.num_layers * num_blocks}});
  return absl::WrapUnique(new EngineHost(std::move(checkpoint), *std::move(plan), *std::move(ranks),
                                         std::move(fingerprint), std::move(name)));
}

absl::Status EngineHost::Step(std::span<const engine::SequenceStep> sequences,
                              const engine::StepHooks& hooks) {
  return ranks_->Step(sequences, hooks);
}

absl::StatusOr<kvtransfer::DeviceTransfer> EngineHost::MakeDeviceTransfer(
    const char* side, metrics::Registry& registry) const {
  if (ranks_->kv(0).device() == engine::KvPool::kHost) return kvtransfer::DeviceTransfer();
  return kvtransfer::MakeDeviceTransfer(fingerprint_, transfer_memory(),
                                        {.metrics = &registry, .side = side});
}

kvtransfer::KvMemory EngineHost::transfer_memory() const {
  kvtransfer::KvMemory memory{.block_size = layout().block_size,
                              .num_blocks = ranks_->kv(0).num_blocks()};
  for (int index = 0; index < ranks_->world_size(); ++index) {
    const engine::KvPool& kv = ranks_->kv(index);
    kvtransfer::KvMemory::Rank rank{
        .layers = {}, .block_bytes = kv.layout().block_bytes(), .device = kv.device()};
    for (int layer = 0; layer < num_layers(); ++layer) rank.layers.push_back(kv.LayerData(layer));
    memory.ranks.push_back(std::move(rank));
  }
  return memory;
}

}  // namespace baton::worker
