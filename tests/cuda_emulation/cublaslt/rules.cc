// Which products there are. Sources: cuBLAS documentation, section cublasLtMatmul() (table of
// supported types; "regular" int8 kernels are TN with multiples of 4).
#include "cuda_emulation/cublaslt/rules.h"

namespace cuda_emulation {
namespace {

bool Transposed(cublasOperation_t operation) { return operation == CUBLAS_OP_T; }

cublasStatus_t CheckShapes(MatmulProblem& problem) {
  const auto& [description, a, b, c, d, m, n, k, kind] = problem;
  const bool at = Transposed(description.transpose_a), bt = Transposed(description.transpose_b);
  problem.m = at ? a.columns : a.rows;
  problem.k = at ? a.rows : a.columns;
  problem.n = bt ? b.rows : b.columns;
  const std::uint64_t k_of_b = bt ? b.columns : b.rows;
  if (problem.k != k_of_b || d.rows != m || d.columns != n || c.rows != m || c.columns != n) {
    return RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmul: the shapes do not fit");
  }
  for (const MatrixLayout* layout : {&a, &b, &c, &d}) {
    const auto length = layout->order == CUBLASLT_ORDER_COL ? layout->rows : layout->columns;
    if (layout->leading < static_cast<std::int64_t>(length)) {
      return RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE,
                          "cublasLtMatmul: a leading dimension below the column's length");
    }
    if (layout->batches != d.batches || layout->batches < 1) {
      return RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmul: batch counts differ");
    }
    if (layout->order != CUBLASLT_ORDER_COL && layout->order != CUBLASLT_ORDER_ROW) {
      return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul: order of elements");
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CheckInt8(const MatmulProblem& problem) {
  const MatmulDescription& description = problem.description;
  const bool fours = problem.m % 4 == 0 && problem.n % 4 == 0 && problem.k % 4 == 0 &&
                     problem.a.leading % 4 == 0 && problem.b.leading % 4 == 0;
  if (!Transposed(description.transpose_a) || Transposed(description.transpose_b) || !fours ||
      problem.a.order != CUBLASLT_ORDER_COL || problem.b.order != CUBLASLT_ORDER_COL) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED,
                        "cublasLtMatmul of int8: a transposed, b not, all sizes multiples of 4");
  }
  if (problem.b.type != CUDA_R_8I || description.compute != CUBLAS_COMPUTE_32I ||
      description.scale != CUDA_R_32I || problem.d.type != CUDA_R_32I ||
      problem.c.type != CUDA_R_32I || description.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED,
                        "cublasLtMatmul of int8: int32 computes, scales and results, no epilogue");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CheckFloats(const MatmulProblem& problem) {
  const MatmulDescription& description = problem.description;
  const cudaDataType_t in = problem.a.type, out = problem.d.type;
  if (in != CUDA_R_16BF && in != CUDA_R_16F && in != CUDA_R_32F) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul: type of a");
  }
  if (problem.b.type != in || problem.c.type != out || (out != in && out != CUDA_R_32F)) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED,
                        "cublasLtMatmul: b must have a's type, c d's, and d a's or float");
  }
  if (description.compute != CUBLAS_COMPUTE_32F || description.scale != CUDA_R_32F) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED,
                        "cublasLtMatmul: floats are computed and scaled in float32");
  }
  if (description.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      description.epilogue != CUBLASLT_EPILOGUE_BIAS) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul: the epilogue");
  }
  const bool has_bias = description.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (has_bias && description.bias_type != kSameAsOutput && description.bias_type != out) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul: a bias has d's type");
  }
  if (has_bias && problem.d.order != CUBLASLT_ORDER_COL) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul: a bias needs column order");
  }
  return CUBLAS_STATUS_SUCCESS;
}

// The kernels on tensor cores read 16 bytes at once. The real library has slow ones for the rest;
// the project is to notice.
cublasStatus_t CheckAlignment(const MatmulProblem& problem) {
  for (const MatrixLayout* layout : {&problem.a, &problem.b}) {
    const auto column_bytes = static_cast<std::size_t>(layout->leading) * BytesOf(layout->type);
    if (column_bytes % 16 != 0) {
      return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED,
                          "cublasLtMatmul: columns of a and b must be multiples of 16 bytes apart");
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

std::uint32_t Fingerprint(const MatmulProblem& problem) {
  std::uint32_t hash = 2166136261u;
  const MatmulDescription& description = problem.description;
  for (const int value :
       {static_cast<int>(problem.a.type), static_cast<int>(problem.d.type),
        static_cast<int>(problem.a.order), static_cast<int>(problem.b.order),
        static_cast<int>(problem.d.order), static_cast<int>(description.transpose_a),
        static_cast<int>(description.transpose_b), static_cast<int>(description.epilogue)}) {
    hash = (hash ^ static_cast<std::uint32_t>(value)) * 16777619u;
  }
  return hash;
}

}  // namespace

std::size_t BytesOf(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_8I:
      return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return 4;
  }
}

std::size_t Extent(const MatrixLayout& layout) {
  const bool columns = layout.order == CUBLASLT_ORDER_COL;
  const std::uint64_t lines = columns ? layout.columns : layout.rows;
  const std::uint64_t length = columns ? layout.rows : layout.columns;
  const std::uint64_t one = (lines - 1) * static_cast<std::uint64_t>(layout.leading) + length;
  const auto others = static_cast<std::uint64_t>((layout.batches - 1) * layout.batch_stride);
  return (others + one) * BytesOf(layout.type);
}

cublasStatus_t ReadProblem(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                           cublasLtMatrixLayout_t d, MatmulProblem& problem) {
  if (Read(description) == nullptr || Read(a) == nullptr || Read(b) == nullptr ||
      Read(c) == nullptr || Read(d) == nullptr) {
    return RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmul: an object that is not one");
  }
  problem = {*Read(description), *Read(a), *Read(b), *Read(c), *Read(d)};
  if (problem.description.pointer_mode != CUBLASLT_POINTER_MODE_HOST) {
    return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul: alpha on the device");
  }
  cublasStatus_t status = CheckShapes(problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  status = problem.a.type == CUDA_R_8I ? CheckInt8(problem) : CheckFloats(problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  problem.kind = Fingerprint(problem);
  return CheckAlignment(problem);
}

std::size_t WorkspaceBytes(const MatmulProblem& problem, std::uint32_t splits) {
  return splits == 1 ? 0 : splits * problem.m * problem.n * sizeof(float);
}

}  // namespace cuda_emulation
