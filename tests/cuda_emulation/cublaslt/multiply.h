#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda_emulation/cublaslt/rules.h"

namespace cuda_emulation {

struct MatmulScales {
  float alpha = 1.0f, beta = 0.0f;
  std::int32_t int_alpha = 1, int_beta = 0;  // of int8 products
};

// Computes one batch entry. Each element of d is summed in an order that depends on k and `splits`
// only, so that a column of b gives the same bits whatever stands beside it.
void Multiply(const MatmulProblem& problem, const MatmulScales& scales, std::uint32_t splits,
              const void* a, const void* b, const void* c, void* d);

}  // namespace cuda_emulation
