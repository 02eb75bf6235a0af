#pragma once
#include <cublasLt.h>

#include <cstdint>

// What cuBLASLt's opaque objects hold here. They lie inside the library's own opaque structs, so
// that those on a caller's stack (cublasLtMatmulDescInit) work too.
namespace cuda_emulation {

struct MatmulDescription {
  std::uint64_t magic;
  cublasComputeType_t compute;
  cudaDataType_t scale;  // type of alpha and beta
  cublasOperation_t transpose_a, transpose_b;
  cublasLtEpilogue_t epilogue;
  cublasLtPointerMode_t pointer_mode;
  std::int32_t bias_type;  // a cudaDataType_t, or kSameAsOutput
  const void* bias;
};
inline constexpr std::int32_t kSameAsOutput = -1;

struct MatrixLayout {
  std::uint64_t magic;
  cudaDataType_t type;
  cublasLtOrder_t order;
  std::uint64_t rows, columns;
  std::int64_t leading;  // elements from one column (row) to the next
  std::int64_t batch_stride;
  std::int32_t batches;
};

struct MatmulPreference {
  std::uint64_t magic;
  std::uint64_t max_workspace_bytes;
};

// An algorithm is bound to the kind of problem it was found for, not to its size.
struct MatmulAlgorithm {
  std::uint64_t magic;   // Write sets it
  std::uint32_t splits;  // of the sum over k: 1 needs no workspace
  std::uint32_t problem_kind;
};

// Null, with CUBLAS_STATUS_INVALID_VALUE to be returned, for what was not made by this library.
const MatmulDescription* Read(cublasLtMatmulDesc_t description);
const MatrixLayout* Read(cublasLtMatrixLayout_t layout);
const MatmulPreference* Read(cublasLtMatmulPreference_t preference);
const MatmulAlgorithm* Read(const cublasLtMatmulAlgo_t* algorithm);
void Write(const MatmulAlgorithm& algorithm, cublasLtMatmulAlgo_t& to);
bool IsHandle(cublasLtHandle_t handle);

// Keeps `why` for LastMessage and returns `status`.
cublasStatus_t RefuseMatmul(cublasStatus_t status, const char* why);

}  // namespace cuda_emulation
