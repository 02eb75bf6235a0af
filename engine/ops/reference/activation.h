#pragma once
#include <cstddef>

#include "engine/model/model_plan.h"

namespace baton::engine::reference {

// The nonlinearity of one value, computed in double. Finite for every finite z.
// Sources: Elfwing et al. 2017 (arXiv:1702.03118), Hendrycks & Gimpel 2016 (arXiv:1606.08415).
float Activate(Activation activation, float z);

// gate[i] = act(gate[i]) * up[i].   gate, up: [count]
// Source: Shazeer 2020 (arXiv:2002.05202).
void Gate(Activation activation, const float* up, std::size_t count, float* gate);

}  // namespace baton::engine::reference
