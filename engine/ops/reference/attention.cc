#include "engine/ops/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine/ops/reference/matmul.h"
#include "engine/ops/reference/softcap.h"

namespace baton::engine::reference {

void AttentionRow(const float* q, const float* keys, const float* values, int num_positions,
                  int head_dim, float scale, float softcap, std::vector<float>& scores,
                  float* out) {
  scores.resize(num_positions);
  for (int p = 0; p < num_positions; ++p) {
    scores[p] = scale * Dot(q, keys + static_cast<std::size_t>(p) * head_dim, head_dim);
  }
  SoftCap(softcap, scores.size(), scores.data());
  const float highest = *std::max_element(scores.begin(), scores.end());
  float total = 0.0f;
  for (float& score : scores) {
    score = std::exp(score - highest);
    total += score;
  }
  std::fill(out, out + head_dim, 0.0f);
  for (int p = 0; p < num_positions; ++p) {
    const float weight = scores[p] / total;
    const float* value = values + static_cast<std::size_t>(p) * head_dim;
    for (int i = 0; i < head_dim; ++i) out[i] += weight * value[i];
  }
}

}  // namespace baton::engine::reference
