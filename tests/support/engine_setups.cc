#include "tests/support/engine_setups.h"

namespace baton::testing {

using engine::ComputeMode;
using engine::KvDType;

std::vector<EngineSetup> F32Setups() {
  std::vector<EngineSetup> setups = {{.backend = Backend::kReference, .kv = KvDType::kF32}};
  setups.push_back({.backend = Backend::kCpu,
                    .compute = ComputeMode::kF32,
                    .kv = KvDType::kF32,
                    .num_threads = 2});
  return setups;
}

std::vector<EngineSetup> AllSetups() {
  std::vector<EngineSetup> setups = F32Setups();
  setups.push_back({.backend = Backend::kReference, .kv = KvDType::kF16});
  for (const ComputeMode compute : {ComputeMode::kF32, ComputeMode::kFast}) {
    setups.push_back(
        {.backend = Backend::kCpu, .compute = compute, .kv = KvDType::kF16, .num_threads = 2});
  }
  return setups;
}

}  // namespace baton::testing
