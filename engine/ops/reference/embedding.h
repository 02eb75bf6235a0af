#pragma once
#include <cstdint>
#include <span>

#include "checkpoint/tensor.h"

namespace baton::engine::reference {

// x[t, :] = scale * table[tokens[t], :].
//   table: [vocab, hidden], any dtype; x: [tokens.size(), hidden]
// Every token must lie in the vocabulary.
void Embedding(const checkpoint::Tensor& table, float scale, std::span<const std::int32_t> tokens,
               float* x);

}  // namespace baton::engine::reference
