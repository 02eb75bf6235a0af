// cuBLASLt on the host: what the project calls, with the type and layout rules of the real library enforced.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>
#include <cstring>
#include <vector>
#include "cuda_emulation/runtime.h"
namespace {
struct Desc { cublasComputeType_t compute; cudaDataType_t scale; cublasOperation_t ta = CUBLAS_OP_N, tb = CUBLAS_OP_N; cublasLtEpilogue_t epi = CUBLASLT_EPILOGUE_DEFAULT; const void* bias = nullptr; const float* a_scale = nullptr; const float* b_scale = nullptr; cublasLtPointerMode_t mode = CUBLASLT_POINTER_MODE_HOST; cudaDataType_t bias_type = static_cast<cudaDataType_t>(-1); };
struct Layout { cudaDataType_t type; std::uint64_t rows, cols; std::int64_t ld; std::int32_t batch = 1; std::int64_t stride = 0; cublasLtOrder_t order = CUBLASLT_ORDER_COL; };
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t) && sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) + 64);
std::size_t Size(cudaDataType_t t) { switch (t) { case CUDA_R_8I: return 1; case CUDA_R_16F: case CUDA_R_16BF: return 2; default: return 4; } }
float Get(cudaDataType_t t, const void* p, std::size_t i) {
  switch (t) { case CUDA_R_8I: return static_cast<const std::int8_t*>(p)[i]; case CUDA_R_16F: return __half2float(static_cast<const __half*>(p)[i]); case CUDA_R_16BF: return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
    case CUDA_R_32I: return static_cast<float>(static_cast<const std::int32_t*>(p)[i]); default: return static_cast<const float*>(p)[i]; }
}
void Put(cudaDataType_t t, void* p, std::size_t i, float v) {
  switch (t) { case CUDA_R_8I: v = v < -128 ? -128 : v > 127 ? 127 : v; static_cast<std::int8_t*>(p)[i] = static_cast<std::int8_t>(__builtin_nearbyintf(v)); break; case CUDA_R_16F: static_cast<__half*>(p)[i] = __float2half_rn(v); break; case CUDA_R_16BF: static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(v); break;
    default: static_cast<float*>(p)[i] = v; }
}
std::size_t At(const Layout& l, std::uint64_t r, std::uint64_t c) { return l.order == CUBLASLT_ORDER_COL ? c * l.ld + r : r * l.ld + c; }
cublasStatus_t Check(const Desc& d, const Layout& a, const Layout& b, const Layout& c, const Layout& o) {
  const bool at = d.ta == CUBLAS_OP_T, bt = d.tb == CUBLAS_OP_T;
  const auto m = at ? a.cols : a.rows, k = at ? a.rows : a.cols, kb = bt ? b.cols : b.rows, n = bt ? b.rows : b.cols;
  if (k != kb || o.rows != m || o.cols != n || c.rows != m || c.cols != n) return CUBLAS_STATUS_INVALID_VALUE;
  for (auto* l : {&a, &b, &c, &o}) if (l->ld < static_cast<std::int64_t>(l->order == CUBLASLT_ORDER_COL ? l->rows : l->cols)) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.type == CUDA_R_8I) {   // IMMA: TN only, everything a multiple of 4, int32 or (with float scale) int8 out
    if (b.type != CUDA_R_8I || d.compute != CUBLAS_COMPUTE_32I) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!at || bt || a.order != CUBLASLT_ORDER_COL || m % 4 || n % 4 || k % 4 || a.ld % 4 || b.ld % 4) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!((o.type == CUDA_R_32I && d.scale == CUDA_R_32I) || (o.type == CUDA_R_8I && d.scale == CUDA_R_32F))) return CUBLAS_STATUS_NOT_SUPPORTED;
  } else if (d.compute != CUBLAS_COMPUTE_32F || d.scale != CUDA_R_32F || a.type != b.type || !(o.type == a.type || o.type == CUDA_R_32F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}
}  // namespace
extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) { *h = reinterpret_cast<cublasLtHandle_t>(new int); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { delete reinterpret_cast<int*>(h); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t c, cudaDataType_t s) { *d = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc{c, s}); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { delete reinterpret_cast<Desc*>(d); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t dd, cublasLtMatmulDescAttributes_t a, const void* v, size_t n) {
  auto* d = reinterpret_cast<Desc*>(dd);
  auto set = [&](auto& f) { if (n != sizeof f) return CUBLAS_STATUS_INVALID_VALUE; std::memcpy(&f, v, n); return CUBLAS_STATUS_SUCCESS; };
  switch (a) { case CUBLASLT_MATMUL_DESC_TRANSA: return set(d->ta); case CUBLASLT_MATMUL_DESC_TRANSB: return set(d->tb); case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(d->epi); case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(d->bias);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return set(d->a_scale); case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return set(d->b_scale); case CUBLASLT_MATMUL_DESC_POINTER_MODE: return set(d->mode); case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(d->bias_type);
    default: return CUBLAS_STATUS_NOT_SUPPORTED; }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType t, uint64_t r, uint64_t c, int64_t ld) { *l = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{t, r, c, ld}); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { delete reinterpret_cast<Layout*>(l); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t ll, cublasLtMatrixLayoutAttribute_t a, const void* v, size_t n) {
  auto* l = reinterpret_cast<Layout*>(ll);
  auto set = [&](auto& f) { if (n != sizeof f) return CUBLAS_STATUS_INVALID_VALUE; std::memcpy(&f, v, n); return CUBLAS_STATUS_SUCCESS; };
  switch (a) { case CUBLASLT_MATRIX_LAYOUT_ORDER: return set(l->order); case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(l->batch); case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(l->stride); default: return CUBLAS_STATUS_NOT_SUPPORTED; }
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) { *p = reinterpret_cast<cublasLtMatmulPreference_t>(new std::uint64_t{0}); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { delete reinterpret_cast<std::uint64_t*>(p); return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t o, cublasLtMatmulPreference_t, int want, cublasLtMatmulHeuristicResult_t r[], int* got) {
  auto s = Check(*reinterpret_cast<Desc*>(d), *reinterpret_cast<Layout*>(a), *reinterpret_cast<Layout*>(b), *reinterpret_cast<Layout*>(c), *reinterpret_cast<Layout*>(o));
  *got = 0;
  if (s != CUBLAS_STATUS_SUCCESS || want < 1) return s;
  r[0] = {}; r[0].state = CUBLAS_STATUS_SUCCESS; r[0].workspaceSize = 0; *got = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t dd, const void* alpha, const void* A, cublasLtMatrixLayout_t la, const void* B, cublasLtMatrixLayout_t lb, const void* beta, const void* C, cublasLtMatrixLayout_t lc, void* D, cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t s) {
  const Desc d = *reinterpret_cast<Desc*>(dd); const Layout a = *reinterpret_cast<Layout*>(la), b = *reinterpret_cast<Layout*>(lb), c = *reinterpret_cast<Layout*>(lc), o = *reinterpret_cast<Layout*>(ld);
  if (auto st = Check(d, a, b, c, o); st != CUBLAS_STATUS_SUCCESS) return st;
  for (const void* p : {A, B, C, static_cast<const void*>(D)}) if (p && (!cuda_emulation::IsDevicePointer(p) || reinterpret_cast<std::uintptr_t>(p) % 16)) return CUBLAS_STATUS_INVALID_VALUE;   // stricter than the library: our callers always align
  const bool int_scale = d.scale == CUDA_R_32I;
  const float al = int_scale ? static_cast<float>(*static_cast<const int*>(alpha)) : *static_cast<const float*>(alpha), be = int_scale ? static_cast<float>(*static_cast<const int*>(beta)) : *static_cast<const float*>(beta);
  cuda_emulation::SubmitToStream(s, [=] {
    const bool at = d.ta == CUBLAS_OP_T, bt = d.tb == CUBLAS_OP_T;
    const std::uint64_t m = o.rows, n = o.cols, k = at ? a.rows : a.cols;
    std::vector<float> ra(m * k), rb(n * k);   // both k-contiguous
    for (std::int32_t z = 0; z < o.batch; ++z) {
      auto base = [&](const void* p, const Layout& l) { return static_cast<const char*>(p) + z * l.stride * Size(l.type); };
      for (std::uint64_t i = 0; i < m; ++i) for (std::uint64_t x = 0; x < k; ++x) ra[i * k + x] = Get(a.type, base(A, a), at ? At(a, x, i) : At(a, i, x));
      for (std::uint64_t j = 0; j < n; ++j) for (std::uint64_t x = 0; x < k; ++x) rb[j * k + x] = Get(b.type, base(B, b), bt ? At(b, j, x) : At(b, x, j));
      for (std::uint64_t j = 0; j < n; ++j)
        for (std::uint64_t i = 0; i < m; ++i) {
          auto* out = const_cast<char*>(base(D, o));
          if (a.type == CUDA_R_8I) {
            std::int32_t acc = 0; for (std::uint64_t x = 0; x < k; ++x) acc += static_cast<std::int32_t>(ra[i * k + x]) * static_cast<std::int32_t>(rb[j * k + x]);
            if (o.type == CUDA_R_32I) { auto* q = reinterpret_cast<std::int32_t*>(out) + At(o, i, j); *q = static_cast<std::int32_t>(al) * acc + (be != 0 ? static_cast<std::int32_t>(be) * *q : 0); }
            else Put(o.type, out, At(o, i, j), al * static_cast<float>(acc));
            continue;
          }
          float acc = 0; for (std::uint64_t x = 0; x < k; ++x) acc += ra[i * k + x] * rb[j * k + x];
          acc *= al;
          if (be != 0) acc += be * Get(c.type, base(C, c), At(c, i, j));
          if (d.epi == CUBLASLT_EPILOGUE_BIAS) acc += Get(o.type, d.bias, i);
          Put(o.type, out, At(o, i, j), acc);
        }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
}
