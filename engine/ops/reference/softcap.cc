#include "engine/ops/reference/softcap.h"

#include <cmath>

namespace baton::engine::reference {

void SoftCap(float cap, std::size_t count, float* values) {
  if (cap == 0.0f) return;
  for (std::size_t i = 0; i < count; ++i) values[i] = cap * std::tanh(values[i] / cap);
}

}  // namespace baton::engine::reference
