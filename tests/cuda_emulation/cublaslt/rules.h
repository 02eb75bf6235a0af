#pragma once
#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

#include "cuda_emulation/cublaslt/objects.h"

namespace cuda_emulation {

// d[m, n] = alpha * op(a)[m, k] * op(b)[k, n] + beta * c[m, n] + bias[m]
struct MatmulProblem {
  MatmulDescription description;
  MatrixLayout a, b, c, d;
  std::uint64_t m = 0, n = 0, k = 0;
  // A fingerprint of types, transposes, orders and epilogue.
  std::uint32_t kind = 0;
};

std::size_t BytesOf(cudaDataType_t type);
// From the first element of the first matrix to the last of the last.
std::size_t Extent(const MatrixLayout& layout);

// Reads the objects and holds them against the rules of the real library:
//   INVALID_VALUE   shapes that do not fit, a leading dimension below the column's length
//   NOT_SUPPORTED   types, transposes, multiples and alignments it has no kernel for
cublasStatus_t ReadProblem(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                           cublasLtMatrixLayout_t d, MatmulProblem& problem);

// What an algorithm with so many splits needs.
std::size_t WorkspaceBytes(const MatmulProblem& problem, std::uint32_t splits);

}  // namespace cuda_emulation
