// cublasLtMatmul and its heuristics.
#include <cublasLt.h>

#include <cstdint>
#include <cstring>

#include "cuda_emulation/cublaslt/multiply.h"
#include "cuda_emulation/cublaslt/objects.h"
#include "cuda_emulation/cublaslt/rules.h"
#include "cuda_emulation/runtime.h"

namespace cuda_emulation {
namespace {

// Algorithms in the order the heuristics offer them: one needs no workspace, the other sums k in
// four parts and so rounds differently. Which comes first depends on the number of columns, as in
// the real library: who chooses anew for each number gets other bits.
constexpr std::uint32_t kSplits[] = {1, 4};
constexpr std::uint32_t kSplitsOfManyColumns[] = {4, 1};
constexpr std::uint64_t kManyColumns = 100;
constexpr std::uintptr_t kAlignment = 16;

bool Aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kAlignment == 0;
}

cublasStatus_t CheckMemory(const MatmulProblem& problem, const void* a, const void* b,
                           const void* c, const void* d, bool reads_c) {
  const auto lies = [](const void* address, const MatrixLayout& layout) {
    return IsDeviceRange(address, Extent(layout));
  };
  if (!lies(a, problem.a) || !lies(b, problem.b) || !lies(d, problem.d) ||
      (reads_c && !lies(c, problem.c))) {
    return RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE,
                        "cublasLtMatmul: a matrix does not lie in one allocation of the device");
  }
  if (!Aligned(a) || !Aligned(b) || !Aligned(d) || (reads_c && !Aligned(c))) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED,
                        "cublasLtMatmul: a matrix is not aligned to 16 bytes");
  }
  const MatmulDescription& description = problem.description;
  if (description.epilogue == CUBLASLT_EPILOGUE_BIAS &&
      !IsDeviceRange(description.bias, problem.m * BytesOf(problem.d.type))) {
    return RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE,
                        "cublasLtMatmul: the bias does not lie in device memory");
  }
  if (reads_c && c == d &&
      (problem.c.leading != problem.d.leading || problem.c.order != problem.d.order)) {
    return RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE,
                        "cublasLtMatmul: c and d are one matrix with two layouts");
  }
  return CUBLAS_STATUS_SUCCESS;
}

MatmulScales ReadScales(const MatmulProblem& problem, const void* alpha, const void* beta) {
  MatmulScales scales;
  if (problem.description.scale == CUDA_R_32I) {
    std::memcpy(&scales.int_alpha, alpha, sizeof scales.int_alpha);
    std::memcpy(&scales.int_beta, beta, sizeof scales.int_beta);
    scales.beta = static_cast<float>(scales.int_beta);
  } else {
    std::memcpy(&scales.alpha, alpha, sizeof scales.alpha);
    std::memcpy(&scales.beta, beta, sizeof scales.beta);
  }
  return scales;
}

// 0: refused.
std::uint32_t SplitsOf(const MatmulProblem& problem, const cublasLtMatmulAlgo_t* algorithm,
                       const void* workspace, std::size_t workspace_bytes) {
  if (algorithm == nullptr) return 1;
  const MatmulAlgorithm* found = Read(algorithm);
  if (found == nullptr || found->problem_kind != problem.kind) {
    RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED,
                 "cublasLtMatmul: the algorithm was found for another kind of product");
    return 0;
  }
  const std::size_t needed = WorkspaceBytes(problem, found->splits);
  if (needed > 0 &&
      (workspace_bytes < needed || !IsDeviceRange(workspace, needed) || !Aligned(workspace))) {
    RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE,
                 "cublasLtMatmul: the algorithm needs more workspace than it is given");
    return 0;
  }
  return found->splits;
}

const char* Offset(const void* base, const MatrixLayout& layout, std::int32_t batch) {
  return static_cast<const char*>(base) +
         batch * layout.batch_stride * static_cast<std::int64_t>(BytesOf(layout.type));
}

}  // namespace
}  // namespace cuda_emulation

using cuda_emulation::MatmulProblem;
using cuda_emulation::RefuseMatmul;

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  const cudaError_t fault = cuda_emulation::EnterCall("cublasLtMatmulAlgoGetHeuristic");
  if (fault == cudaErrorNotSupported) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (fault != cudaSuccess || !cuda_emulation::IsHandle(handle)) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  const auto* preferred = cuda_emulation::Read(preference);
  if (preferred == nullptr || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  MatmulProblem problem;
  const cublasStatus_t status = cuda_emulation::ReadProblem(description, a, b, c, d, problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  for (const std::uint32_t splits : problem.n < cuda_emulation::kManyColumns
                                        ? cuda_emulation::kSplits
                                        : cuda_emulation::kSplitsOfManyColumns) {
    const std::size_t bytes = cuda_emulation::WorkspaceBytes(problem, splits);
    if (*found == wanted) break;
    if (bytes > preferred->max_workspace_bytes) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    cuda_emulation::Write({.splits = splits, .problem_kind = problem.kind}, result.algo);
    result.workspaceSize = bytes;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1.0f;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (!cuda_emulation::IsHandle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  MatmulProblem problem;
  const cublasStatus_t status = cuda_emulation::ReadProblem(description, a, b, c, d, problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const auto* found = cuda_emulation::Read(algorithm);
  if (found == nullptr || found->problem_kind != problem.kind) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  result->algo = *algorithm;
  result->workspaceSize = cuda_emulation::WorkspaceBytes(problem, found->splits);
  result->wavesCount = 1.0f;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (cuda_emulation::EnterCall("cublasLtMatmul") != cudaSuccess) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  if (!cuda_emulation::IsHandle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  MatmulProblem problem;
  cublasStatus_t status =
      cuda_emulation::ReadProblem(description, a_layout, b_layout, c_layout, d_layout, problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const cuda_emulation::MatmulScales scales = cuda_emulation::ReadScales(problem, alpha, beta);
  status = cuda_emulation::CheckMemory(problem, a, b, c, d, scales.beta != 0.0f);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const std::uint32_t splits =
      cuda_emulation::SplitsOf(problem, algorithm, workspace, workspace_bytes);
  if (splits == 0) return CUBLAS_STATUS_INVALID_VALUE;
  const std::size_t scribbled = cuda_emulation::WorkspaceBytes(problem, splits);
  const cudaError_t error = cuda_emulation::SubmitToStream(
      stream,
      [=, device = cuda_emulation::DeviceOfStream(stream)] {
        if (cuda_emulation::StickyError(device) != cudaSuccess) return;
        // Whoever shares the workspace with another stream is to notice.
        if (scribbled > 0) std::memset(workspace, 0xFF, scribbled);
        for (std::int32_t batch = 0; batch < problem.d.batches; ++batch) {
          using cuda_emulation::Offset;
          cuda_emulation::Multiply(problem, scales, splits, Offset(a, problem.a, batch),
                                   Offset(b, problem.b, batch), Offset(c, problem.c, batch),
                                   const_cast<char*>(Offset(d, problem.d, batch)));
        }
      },
      "cublasLtMatmul");
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
