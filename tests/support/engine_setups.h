#pragma once
#include <vector>

#include "tests/support/golden_engine.h"

namespace baton::testing {

// Every arithmetic that this build offers, for tests that hold for all of them: two threads where a
// backend has threads, so that the split of work is exercised.
std::vector<EngineSetup> AllSetups();
// Those whose products are plain float.
std::vector<EngineSetup> F32Setups();

}  // namespace baton::testing
