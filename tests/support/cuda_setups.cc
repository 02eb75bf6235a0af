#include "tests/support/cuda_setups.h"

#include <memory>

#include "engine/ops/cuda/cuda_backend.h"

namespace baton::testing {
namespace {

absl::StatusOr<std::unique_ptr<engine::Ops>> MakeOnCuda(const EngineSetup& setup,
                                                        const engine::ModelPlan& plan) {
  return engine::MakeCudaOps({.type = setup.kv,
                              .max_rows = setup.max_rows,
                              .max_sequences = setup.max_sequences,
                              .block_size = setup.block_size,
                              .graphs = setup.graphs,
                              // Emulation is slow, and the machine may be busy.
                              .step_timeout = absl::Minutes(10)},
                             plan);
}

}  // namespace

EngineSetup CudaSetup(engine::KvDType type) {
  EngineSetup setup{.backend = Backend::kCuda, .kv = type};
  setup.max_rows = 64;
  setup.kv_tokens = 2048;
  setup.make_ops = MakeOnCuda;
  return setup;
}

std::vector<EngineSetup> CudaSetups() {
  return {CudaSetup(engine::KvDType::kBF16), CudaSetup(engine::KvDType::kF16)};
}

}  // namespace baton::testing
