#pragma once
#include <cstddef>

namespace baton::engine::reference {

// values[i] = cap * tanh(values[i] / cap); unchanged where cap is 0.   values: [count]
// Source: Gemma 2 (arXiv:2408.00118), section 2.
void SoftCap(float cap, std::size_t count, float* values);

}  // namespace baton::engine::reference
