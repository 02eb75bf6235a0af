#include "engine/ops/reference/rope.h"

#include <cstddef>

namespace baton::engine::reference {

void RopeRow(const Rope& rope, const float* cos, const float* sin, int num_heads, int head_dim,
             float* heads) {
  const int num_pairs = rope.dim / 2;
  for (int head = 0; head < num_heads; ++head) {
    float* values = heads + static_cast<std::size_t>(head) * head_dim;
    for (int pair = 0; pair < num_pairs; ++pair) {
      float& first = values[rope.interleaved ? 2 * pair : pair];
      float& second = values[rope.interleaved ? 2 * pair + 1 : pair + num_pairs];
      const float a = first, b = second;
      first = a * cos[pair] - b * sin[pair];
      second = b * cos[pair] + a * sin[pair];
    }
  }
}

}  // namespace baton::engine::reference
