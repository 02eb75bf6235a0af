#pragma once
#include "engine/model/model_plan.h"

namespace baton::engine::reference {

// Rotates the first `table.dim` elements of every head by the angles of `position`: with c, s of
// pair i, (a, b) becomes (a*c - b*s, b*c + a*s). Elements beyond stay as they are.
//   heads: [num_heads, head_dim], rotated in place.
// Source: Su et al. 2021 (arXiv:2104.09864); which elements pair up is the table's matter.
void RopeRow(const RopeTable& table, int position, int num_heads, int head_dim, float* heads);

}  // namespace baton::engine::reference
