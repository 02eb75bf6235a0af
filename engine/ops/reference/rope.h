#pragma once
#include "engine/model/rope.h"

namespace baton::engine::reference {

// Rotates the first `rope.dim` elements of every head: with cos[i], sin[i] of pair i, (a, b)
// becomes (a*c - b*s, b*c + a*s). Elements beyond stay as they are.
//   heads: [num_heads, head_dim], rotated in place; cos, sin: [rope.dim / 2]
// Source: Su et al. 2021 (arXiv:2104.09864); which elements pair up is `rope`'s matter.
void RopeRow(const Rope& rope, const float* cos, const float* sin, int num_heads, int head_dim,
             float* heads);

}  // namespace baton::engine::reference
