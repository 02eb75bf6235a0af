#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "engine/model/model_plan.h"

namespace baton::testing {

// Cosine and sine, times the scaling's magnitude, that pair `pair` of a row at `position` is turned
// by in a layer that uses `rope`, an index into ModelPlan::ropes.
struct Turn {
  double cos = 1;
  double sin = 0;
};
using TurnFunction = std::function<Turn(int rope, int position, int pair)>;

// Logits [vocab] after each of `tokens`: the definitions of LayerPlan and ModelPlan in double
// precision, one pass over the whole sequence, no cache, no batch. Shares no arithmetic with the
// backends; slow, for models of some thousand parameters.
std::vector<std::vector<double>> DoubleForward(const checkpoint::Checkpoint& checkpoint,
                                               const engine::ModelPlan& plan,
                                               std::span<const std::int32_t> tokens,
                                               const TurnFunction& turn);

}  // namespace baton::testing
