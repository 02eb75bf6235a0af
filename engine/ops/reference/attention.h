#pragma once
#include <vector>

namespace baton::engine::reference {

// Attention of one query head of one row over the `num_positions` positions it sees:
//   out = sum over p of softmax(cap(scale * q . keys[p])) * values[p]
//   cap(s) = softcap * tanh(s / softcap), or s where softcap is 0
//   q, out: [head_dim]; keys, values: [num_positions, head_dim]; num_positions >= 1
// Two passes, the largest score subtracted before the exponential.
void AttentionRow(const float* q, const float* keys, const float* values, int num_positions,
                  int head_dim, float scale, float softcap, std::vector<float>& scores, float* out);

}  // namespace baton::engine::reference
