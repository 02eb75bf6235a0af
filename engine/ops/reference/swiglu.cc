#include "engine/ops/reference/swiglu.h"

#include <cmath>

namespace baton::engine::reference {

void SwiGlu(const float* up, std::size_t count, float* gate) {
  for (std::size_t i = 0; i < count; ++i) {
    gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

}  // namespace baton::engine::reference
