#pragma once
#include <cstddef>

namespace baton::engine::reference {

// gate[i] = silu(gate[i]) * up[i], silu(z) = z / (1 + e^-z).   gate, up: [count]
// Source: Shazeer 2020 (arXiv:2002.05202).
void SwiGlu(const float* up, std::size_t count, float* gate);

}  // namespace baton::engine::reference
