#pragma once
#include <vector>

#include "tests/support/golden_engine.h"

namespace baton::testing {

// The CUDA backend in bf16 and f16, for tests that link it with kernels (emulated or not).
EngineSetup CudaSetup(engine::KvDType type);
std::vector<EngineSetup> CudaSetups();

}  // namespace baton::testing
