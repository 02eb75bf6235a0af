#include "engine/ops/reference/rope.h"

#include <cstddef>

namespace baton::engine::reference {

void RopeRow(const RopeTable& table, int position, int num_heads, int head_dim, float* heads) {
  const int num_pairs = table.dim / 2;
  const float* cosines = table.cos.data() + static_cast<std::size_t>(position) * num_pairs;
  const float* sines = table.sin.data() + static_cast<std::size_t>(position) * num_pairs;
  for (int head = 0; head < num_heads; ++head) {
    float* values = heads + static_cast<std::size_t>(head) * head_dim;
    for (int pair = 0; pair < num_pairs; ++pair) {
      float& first = values[table.interleaved ? 2 * pair : pair];
      float& second = values[table.interleaved ? 2 * pair + 1 : pair + num_pairs];
      const float a = first, b = second;
      first = a * cosines[pair] - b * sines[pair];
      second = b * cosines[pair] + a * sines[pair];
    }
  }
}

}  // namespace baton::engine::reference
