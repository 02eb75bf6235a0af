#include "engine/ops/cuda/matmul_library.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status.h"

namespace baton::engine::cuda {
namespace {

// Every pointer of a product is a multiple of this; cuBLASLt would else assume 256 bytes, which
// parts of fused matrices don't keep.
constexpr std::uint32_t kAlignment = 16;
// Algorithms looked at for one that does every number of rows of a class.
constexpr int kCandidates = 8;

absl::Status ToStatus(cublasStatus_t status, std::string_view call) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return absl::OkStatus();
    case CUBLAS_STATUS_ALLOC_FAILED:
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s: no memory for cuBLASLt; use fewer KV blocks", call));
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s: cuBLASLt does not start on this device (status %d); check the driver and that the "
          "GPU has compute capability 8.0 or more",
          call, static_cast<int>(status)));
    default:
      return absl::InternalError(
          absl::StrFormat("%s failed: cuBLAS status %d", call, static_cast<int>(status)));
  }
}

#define BATON_LT_RETURN_IF_ERROR(call) BATON_RETURN_IF_ERROR(ToStatus((call), #call))

template <class T>
absl::Status Set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                 T value) {
  return ToStatus(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)),
                  "cublasLtMatrixLayoutSetAttribute");
}
template <class T>
absl::Status Set(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute, T value) {
  return ToStatus(cublasLtMatmulDescSetAttribute(matmul, attribute, &value, sizeof(value)),
                  "cublasLtMatmulDescSetAttribute");
}
template <class T>
absl::Status Set(cublasLtMatmulPreference_t preference,
                 cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return ToStatus(
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

// Owns a preference.
struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  ~Preference() {
    if (handle != nullptr) cublasLtMatmulPreferenceDestroy(handle);
  }
};

absl::Status SetPreferences(cublasLtMatmulPreference_t preference, std::uint64_t workspace_bytes) {
  BATON_RETURN_IF_ERROR(Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes));
  // Split sums may be kept as floats in the workspace, but not rounded to T between the parts.
  BATON_RETURN_IF_ERROR(
      Set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
          std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    BATON_RETURN_IF_ERROR(Set(preference, attribute, kAlignment));
  }
  return absl::OkStatus();
}

}  // namespace

// The library's matrices are column-major: W [outputs, inputs] is A with columns of inputs,
// transposed; x is B; y is C and D, [outputs] a column.
struct MatmulLibrary::Plan {
  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool exists = false;  // an algorithm
  absl::Status SetRows(std::uint64_t rows) const {
    BATON_RETURN_IF_ERROR(Set(x, CUBLASLT_MATRIX_LAYOUT_COLS, rows));
    return Set(y, CUBLASLT_MATRIX_LAYOUT_COLS, rows);
  }
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {w, x, y}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (matmul != nullptr) cublasLtMatmulDescDestroy(matmul);
  }
};

MatmulLibrary::MatmulLibrary(ElementType type, cublasLtHandle_t handle, gpu::DeviceBuffer workspace)
    : type_(type), handle_(handle), workspace_(std::move(workspace)) {}

absl::StatusOr<std::unique_ptr<MatmulLibrary>> MatmulLibrary::Create(ElementType type,
                                                                     std::size_t workspace_bytes) {
  BATON_ASSIGN_OR_RETURN(gpu::DeviceBuffer workspace, gpu::DeviceBuffer::Create(workspace_bytes));
  cublasLtHandle_t handle = nullptr;
  BATON_LT_RETURN_IF_ERROR(cublasLtCreate(&handle));
  return std::unique_ptr<MatmulLibrary>(new MatmulLibrary(type, handle, std::move(workspace)));
}

MatmulLibrary::~MatmulLibrary() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

absl::Status MatmulLibrary::Choose(const Shape& shape, const void* bias, Plan& plan) {
  const cudaDataType_t t = type_ == ElementType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
  const cudaDataType_t out = shape.float_output ? CUDA_R_32F : t;
  BATON_LT_RETURN_IF_ERROR(cublasLtMatmulDescCreate(&plan.matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  BATON_RETURN_IF_ERROR(Set(plan.matmul, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
  if (shape.has_bias) {
    BATON_RETURN_IF_ERROR(Set(plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    BATON_RETURN_IF_ERROR(Set(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  }
  BATON_LT_RETURN_IF_ERROR(
      cublasLtMatrixLayoutCreate(&plan.w, t, shape.inputs, shape.outputs, shape.inputs));
  BATON_LT_RETURN_IF_ERROR(
      cublasLtMatrixLayoutCreate(&plan.x, t, shape.inputs, shape.max_rows, shape.x_stride));
  BATON_LT_RETURN_IF_ERROR(
      cublasLtMatrixLayoutCreate(&plan.y, out, shape.outputs, shape.max_rows, shape.y_stride));
  Preference preference;
  BATON_LT_RETURN_IF_ERROR(cublasLtMatmulPreferenceCreate(&preference.handle));
  BATON_RETURN_IF_ERROR(SetPreferences(preference.handle, workspace_.bytes()));
  cublasLtMatmulHeuristicResult_t found[kCandidates] = {};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.matmul, plan.w, plan.x, plan.y, plan.y,
                                     preference.handle, kCandidates, found, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(ToStatus(status, "cublasLtMatmulAlgoGetHeuristic"));
  // The fastest for the largest number of rows that can do the smallest as well.
  BATON_RETURN_IF_ERROR(plan.SetRows(1));
  for (int i = 0; i < count && !plan.exists; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    cublasLtMatmulHeuristicResult_t checked{};
    plan.exists = cublasLtMatmulAlgoCheck(handle_, plan.matmul, plan.w, plan.x, plan.y, plan.y,
                                          &found[i].algo, &checked) == CUBLAS_STATUS_SUCCESS &&
                  checked.workspaceSize <= workspace_.bytes();
    plan.algorithm = found[i].algo;
  }
  return absl::OkStatus();
}

absl::StatusOr<MatmulLibrary::Plan*> MatmulLibrary::PlanOf(const LibraryProduct& product,
                                                           int max_rows) {
  const Shape shape{product.outputs,        product.inputs,   max_rows,
                    product.x_stride,       product.y_stride, product.float_output,
                    product.bias != nullptr};
  if (const auto found = plans_.find(shape); found != plans_.end()) return found->second.get();
  auto plan = std::make_unique<Plan>();
  BATON_RETURN_IF_ERROR(Annotate(Choose(shape, product.bias, *plan),
                                 absl::StrFormat("product of %d x %d weights, %d rows",
                                                 shape.outputs, shape.inputs, max_rows)));
  return plans_.emplace(shape, std::move(plan)).first->second.get();
}

absl::StatusOr<bool> MatmulLibrary::Has(const LibraryProduct& product, int max_rows) {
  BATON_ASSIGN_OR_RETURN(const Plan* plan, PlanOf(product, max_rows));
  return plan->exists;
}

absl::Status MatmulLibrary::Run(const LibraryProduct& product, int max_rows, cudaStream_t stream) {
  BATON_ASSIGN_OR_RETURN(Plan * plan, PlanOf(product, max_rows));
  BATON_CHECK(plan->exists && product.num_rows <= max_rows, "a product that the library has");
  BATON_RETURN_IF_ERROR(plan->SetRows(static_cast<std::uint64_t>(product.num_rows)));
  if (product.bias != nullptr) {
    BATON_RETURN_IF_ERROR(Set(plan->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias));
  }
  const float alpha = 1.0f, beta = product.add ? 1.0f : 0.0f;
  const cublasStatus_t status = cublasLtMatmul(
      handle_, plan->matmul, &alpha, product.w, plan->w, product.x, plan->x, &beta, product.y,
      plan->y, product.y, plan->y, &plan->algorithm, workspace_.data(), workspace_.bytes(), stream);
  return Annotate(ToStatus(status, "cublasLtMatmul"),
                  absl::StrFormat("product of %d x %d weights, %d rows", product.outputs,
                                  product.inputs, product.num_rows));
}

}  // namespace baton::engine::cuda
