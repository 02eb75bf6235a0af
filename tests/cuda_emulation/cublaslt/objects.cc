#include "cuda_emulation/cublaslt/objects.h"

#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <string>

#include "cuda_emulation/runtime.h"

namespace cuda_emulation {
namespace {

constexpr std::uint64_t kMagic = 0x6261746f6e4c7400;

struct Handles {
  std::mutex mutex;
  std::set<cublasLtHandle_t> live;
};
Handles& TheHandles() {
  static auto* handles = new Handles;
  return *handles;
}

template <class State, class Opaque>
State* StateOf(Opaque* opaque) {
  static_assert(sizeof(State) <= sizeof(Opaque));
  return reinterpret_cast<State*>(opaque);
}
template <class State, class Opaque>
const State* ReadAs(Opaque* opaque) {
  if (opaque == nullptr) return nullptr;
  const auto* state = reinterpret_cast<const State*>(opaque);
  return state->magic == kMagic ? state : nullptr;
}

cublasStatus_t Fill(cublasLtMatmulDesc_t description, cublasComputeType_t compute,
                    cudaDataType_t scale) {
  *StateOf<MatmulDescription>(description) = {.magic = kMagic,
                                              .compute = compute,
                                              .scale = scale,
                                              .transpose_a = CUBLAS_OP_N,
                                              .transpose_b = CUBLAS_OP_N,
                                              .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                              .pointer_mode = CUBLASLT_POINTER_MODE_HOST,
                                              .bias_type = kSameAsOutput,
                                              .bias = nullptr};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Fill(cublasLtMatrixLayout_t layout, cudaDataType_t type, std::uint64_t rows,
                    std::uint64_t columns, std::int64_t leading) {
  if (rows == 0 || columns == 0) {
    return RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE, "cublasLt: a matrix without elements");
  }
  *StateOf<MatrixLayout>(layout) = {.magic = kMagic,
                                    .type = type,
                                    .order = CUBLASLT_ORDER_COL,
                                    .rows = rows,
                                    .columns = columns,
                                    .leading = leading,
                                    .batch_stride = 0,
                                    .batches = 1};
  return CUBLAS_STATUS_SUCCESS;
}

template <class Field>
cublasStatus_t Set(Field& field, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof field) {
    return RefuseMatmul(CUBLAS_STATUS_INVALID_VALUE, "cublasLt: an attribute of the wrong size");
  }
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t UnknownAttribute() {
  return RefuseMatmul(CUBLAS_STATUS_NOT_SUPPORTED,
                      "cublasLt: an attribute that is not emulated; add it to "
                      "cublaslt/objects.cc");
}

template <class Opaque, class Destroyed>
cublasStatus_t Destroy(Opaque* opaque, const Destroyed* state) {
  if (state == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *opaque = {};
  delete opaque;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const MatmulDescription* Read(cublasLtMatmulDesc_t description) {
  return ReadAs<MatmulDescription>(description);
}
const MatrixLayout* Read(cublasLtMatrixLayout_t layout) { return ReadAs<MatrixLayout>(layout); }
const MatmulPreference* Read(cublasLtMatmulPreference_t preference) {
  return ReadAs<MatmulPreference>(preference);
}
const MatmulAlgorithm* Read(const cublasLtMatmulAlgo_t* algorithm) {
  return ReadAs<MatmulAlgorithm>(algorithm);
}

void Write(const MatmulAlgorithm& algorithm, cublasLtMatmulAlgo_t& to) {
  to = {};
  auto* state = StateOf<MatmulAlgorithm>(&to);
  *state = algorithm;
  state->magic = kMagic;
}

bool IsHandle(cublasLtHandle_t handle) {
  const std::lock_guard lock(TheHandles().mutex);
  return TheHandles().live.contains(handle);
}

cublasStatus_t RefuseMatmul(cublasStatus_t status, const char* why) {
  Refuse(cudaErrorInvalidValue, why);
  cudaGetLastError();  // cuBLASLt leaves the runtime's last error alone
  return status;
}

}  // namespace cuda_emulation

using cuda_emulation::Fill;
using cuda_emulation::MatmulAlgorithm;
using cuda_emulation::MatmulDescription;
using cuda_emulation::MatmulPreference;
using cuda_emulation::MatrixLayout;
using cuda_emulation::Read;
using cuda_emulation::Set;
using cuda_emulation::StateOf;
using cuda_emulation::UnknownAttribute;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (cuda_emulation::EnterCall("cublasLtCreate") != cudaSuccess) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  const std::lock_guard lock(cuda_emulation::TheHandles().mutex);
  cuda_emulation::TheHandles().live.insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const std::lock_guard lock(cuda_emulation::TheHandles().mutex);
  if (cuda_emulation::TheHandles().live.erase(handle) == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "an unknown cuBLAS status";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, std::size_t,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  return Fill(description, compute, scale);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  *description = new cublasLtMatmulDescOpaque_t{};
  return Fill(*description, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return cuda_emulation::Destroy(description, Read(description));
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  if (Read(description) == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto* state = StateOf<MatmulDescription>(description);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(state->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(state->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(state->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(state->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Set(state->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return Set(state->pointer_mode, value, bytes);
    default:
      return UnknownAttribute();
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t,
                                                 cudaDataType type, std::uint64_t rows,
                                                 std::uint64_t columns, std::int64_t leading) {
  return Fill(layout, type, rows, columns, leading);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  auto* made = new cublasLtMatrixLayoutOpaque_t{};
  const cublasStatus_t status = Fill(made, type, rows, columns, leading);
  if (status != CUBLAS_STATUS_SUCCESS) {
    delete made;
    return status;
  }
  *layout = made;
  return status;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return cuda_emulation::Destroy(layout, Read(layout));
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  if (Read(layout) == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto* state = StateOf<MatrixLayout>(layout);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return Set(state->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return Set(state->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return Set(state->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return Set(state->columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return Set(state->leading, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Set(state->batches, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Set(state->batch_stride, value, bytes);
    default:
      return UnknownAttribute();
  }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     std::size_t) {
  *StateOf<MatmulPreference>(preference) = {.magic = cuda_emulation::kMagic,
                                            .max_workspace_bytes = 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  return cublasLtMatmulPreferenceInit_internal(*preference, sizeof **preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return cuda_emulation::Destroy(preference, Read(preference));
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (Read(preference) == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::uint32_t ignored = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(StateOf<MatmulPreference>(preference)->max_workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Set(ignored, value, bytes);
    default:
      return UnknownAttribute();
  }
}

}  // extern "C"
