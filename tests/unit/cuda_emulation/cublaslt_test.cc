// The emulated cuBLASLt: products against plain loops, and what it refuses.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <random>

#include "gpu/vector_access.h"
#include "tests/unit/cuda_emulation/emulation_test.h"

namespace cuda_emulation {
namespace {

// y[n, m] = x[n, k] w[m, k]^T in rows, which is d[m, n] = w^T x in cuBLASLt's columns.
struct Shape {
  int m, n, k;
};

template <class T>
constexpr cudaDataType_t kType = CUDA_R_32F;
template <>
constexpr cudaDataType_t kType<__half> = CUDA_R_16F;
template <>
constexpr cudaDataType_t kType<__nv_bfloat16> = CUDA_R_16BF;
template <>
constexpr cudaDataType_t kType<std::int8_t> = CUDA_R_8I;
template <>
constexpr cudaDataType_t kType<std::int32_t> = CUDA_R_32I;

class CublasLtTest : public EmulationTest {
 protected:
  void SetUp() override {
    EmulationTest::SetUp();
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference_), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    Forget();
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    EmulationTest::TearDown();
  }
  void Forget() {
    if (description_ == nullptr) return;
    EXPECT_EQ(cublasLtMatmulDescDestroy(description_), CUBLAS_STATUS_SUCCESS);
    for (const cublasLtMatrixLayout_t layout : {w_, x_, y_}) {
      EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
    }
    description_ = nullptr;
  }
  template <class In, class Out>
  void Describe(const Shape& shape, bool transposed = true) {
    Forget();
    const bool int8 = kType<In> == CUDA_R_8I;
    ASSERT_EQ(
        cublasLtMatmulDescCreate(&description_, int8 ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                 int8 ? CUDA_R_32I : CUDA_R_32F),
        CUBLAS_STATUS_SUCCESS);
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    Set(CUBLASLT_MATMUL_DESC_TRANSA, operation);
    const int rows = transposed ? shape.k : shape.m, columns = transposed ? shape.m : shape.k;
    cublasLtMatrixLayoutCreate(&w_, kType<In>, rows, columns, rows);
    cublasLtMatrixLayoutCreate(&x_, kType<In>, shape.k, shape.n, shape.k);
    cublasLtMatrixLayoutCreate(&y_, kType<Out>, shape.m, shape.n, shape.m);
  }
  template <class V>
  void Set(cublasLtMatmulDescAttributes_t attribute, const V& value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> Ask(std::size_t workspace = 0) {
    cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
    std::vector<cublasLtMatmulHeuristicResult_t> results(8);
    int found = 0;
    status_ = cublasLtMatmulAlgoGetHeuristic(handle_, description_, w_, x_, y_, y_, preference_, 8,
                                             results.data(), &found);
    results.resize(found);
    return results;
  }
  template <class Scale = float>
  cublasStatus_t Multiply(const void* w, const void* x, void* y, Scale alpha = 1, Scale beta = 0,
                          const cublasLtMatmulAlgo_t* algorithm = nullptr,
                          void* workspace = nullptr, std::size_t workspace_bytes = 0) {
    return cublasLtMatmul(handle_, description_, &alpha, w, w_, x, x_, &beta, y, y_, y, y_,
                          algorithm, workspace, workspace_bytes, stream());
  }
  template <class T>
  std::vector<T> Random(std::size_t count) {
    std::vector<T> values(count);
    std::normal_distribution<float> normal;
    for (T& value : values) {
      if constexpr (kType<T> == CUDA_R_8I) {
        value = static_cast<std::int8_t>(random_());
      } else {
        value = baton::gpu::FromFloat<T>(normal(random_));
      }
    }
    return values;
  }

  std::mt19937 random_{1};
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

template <class T>
class CublasLtTypedTest : public CublasLtTest {};
template <class In, class Out>
struct Types {
  using Input = In;
  using Output = Out;
};
using AllTypes =
    ::testing::Types<Types<__half, __half>, Types<__half, float>, Types<__nv_bfloat16, float>,
                     Types<__nv_bfloat16, __nv_bfloat16>, Types<float, float>>;
TYPED_TEST_SUITE(CublasLtTypedTest, AllTypes);

TYPED_TEST(CublasLtTypedTest, EqualsPlainLoops) {
  using In = typename TypeParam::Input;
  using Out = typename TypeParam::Output;
  for (const Shape& shape : {Shape{8, 1, 8}, {40, 3, 72}, {17, 33, 136}, {64, 5, 256}}) {
    SCOPED_TRACE(shape.m);
    const auto w = this->template Random<In>(shape.m * shape.k);
    const auto x = this->template Random<In>(shape.n * shape.k);
    const auto y = this->template Random<Out>(shape.m * shape.n);
    const auto bias = this->template Random<Out>(shape.m);
    const In *device_w = this->NewDevice(w), *device_x = this->NewDevice(x);
    Out* device_y = this->NewDevice(y);
    this->template Describe<In, Out>(shape);
    this->Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    const void* device_bias = this->NewDevice(bias);
    this->Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, device_bias);

    ASSERT_EQ(this->Multiply(device_w, device_x, device_y, 0.5f, 1.0f), CUBLAS_STATUS_SUCCESS);

    const auto got = this->Read(device_y, y.size());
    const double tolerance = sizeof(Out) == 2 ? 1e-2 : 1e-5;
    for (int row = 0; row < shape.n; ++row) {
      for (int i = 0; i < shape.m; ++i) {
        double sum = 0, size = 1;
        for (int j = 0; j < shape.k; ++j) {
          const double term = double{baton::gpu::ToFloat(w[i * shape.k + j])} *
                              baton::gpu::ToFloat(x[row * shape.k + j]);
          sum += term;
          size += std::abs(term);
        }
        const double want =
            0.5 * sum + baton::gpu::ToFloat(y[row * shape.m + i]) + baton::gpu::ToFloat(bias[i]);
        EXPECT_NEAR(baton::gpu::ToFloat(got[row * shape.m + i]), want, tolerance * size);
      }
    }
  }
}

TEST_F(CublasLtTest, RowDoesNotDependOnOthers) {
  const Shape shape{72, 7, 200};
  const auto w = Random<__half>(shape.m * shape.k), x = Random<__half>(shape.n * shape.k);
  const __half *device_w = NewDevice(w), *device_x = NewDevice(x);
  float* all = NewDevice<float>(shape.m * shape.n);
  float* one = NewDevice<float>(shape.m);
  Describe<__half, float>(shape);
  ASSERT_EQ(Multiply(device_w, device_x, all), CUBLAS_STATUS_SUCCESS);
  const auto wanted = Read(all, shape.m * shape.n);
  for (int row = 0; row < shape.n; ++row) {
    Describe<__half, float>({shape.m, 1, shape.k});
    ASSERT_EQ(Multiply(device_w, device_x + row * shape.k, one), CUBLAS_STATUS_SUCCESS);
    const auto got = Read(one, shape.m);
    EXPECT_EQ(std::memcmp(got.data(), wanted.data() + row * shape.m, shape.m * sizeof(float)), 0);
  }
}

TEST_F(CublasLtTest, BytesAreExact) {
  const Shape shape{24, 12, 1024};
  const auto w = Random<std::int8_t>(shape.m * shape.k), x = Random<std::int8_t>(shape.n * shape.k);
  std::int32_t* y = NewDevice<std::int32_t>(shape.m * shape.n);
  Describe<std::int8_t, std::int32_t>(shape);
  ASSERT_EQ(Multiply<std::int32_t>(NewDevice(w), NewDevice(x), y), CUBLAS_STATUS_SUCCESS);
  const auto got = Read(y, shape.m * shape.n);
  for (int row = 0; row < shape.n; ++row) {
    for (int i = 0; i < shape.m; ++i) {
      std::int32_t sum = 0;
      for (int j = 0; j < shape.k; ++j) sum += w[i * shape.k + j] * x[row * shape.k + j];
      EXPECT_EQ(got[row * shape.m + i], sum);
    }
  }
}

TEST_F(CublasLtTest, RefusesWhatTheLibraryHasNoKernelFor) {
  Describe<std::int8_t, std::int32_t>({24, 12, 64}, false);
  EXPECT_TRUE(Ask().empty());
  EXPECT_EQ(status_, CUBLAS_STATUS_NOT_SUPPORTED);
  Describe<std::int8_t, std::int32_t>({24, 13, 64});
  EXPECT_TRUE(Ask().empty());
  Describe<std::int8_t, float>({24, 12, 64});
  EXPECT_TRUE(Ask().empty());
  Describe<__half, __nv_bfloat16>({24, 12, 64});
  EXPECT_TRUE(Ask().empty());
  Describe<__half, float>({24, 12, 63});  // columns of 126 bytes
  EXPECT_TRUE(Ask().empty());
  Describe<__half, float>({24, 12, 64});
  EXPECT_EQ(Ask().size(), 1u);
  Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU);
  EXPECT_TRUE(Ask().empty());
}

TEST_F(CublasLtTest, RefusesMemoryThatIsNotTheDevices) {
  std::vector<__half> host(24 * 64);
  const __half *w = NewDevice<__half>(24 * 64), *x = NewDevice<__half>(12 * 64);
  float* y = NewDevice<float>(24 * 12);
  Describe<__half, float>({24, 12, 64});
  EXPECT_EQ(Multiply(host.data(), x, y), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(Multiply(w, x + 8, y), CUBLAS_STATUS_INVALID_VALUE);  // leaves its allocation
  EXPECT_EQ(Multiply(w, x, y + 1), CUBLAS_STATUS_INVALID_VALUE);
  Describe<__half, float>({16, 8, 64});
  EXPECT_EQ(Multiply(w + 1, x, y), CUBLAS_STATUS_NOT_SUPPORTED);  // alignment
  EXPECT_EQ(Multiply(w, x, y), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasLtTest, AlgorithmsNeedTheirWorkspaceAndTheirKindOfProduct) {
  const Shape shape{24, 12, 64};
  const __half *w = NewDevice(Random<__half>(24 * 64)), *x = NewDevice(Random<__half>(12 * 64));
  float* y = NewDevice<float>(24 * 12);
  Describe<__half, float>(shape);
  const auto found = Ask(std::size_t{1} << 20);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].workspaceSize, 0u);
  const std::size_t bytes = found[1].workspaceSize;
  char* workspace = NewDevice<char>(bytes);
  EXPECT_EQ(Multiply(w, x, y, 1.0f, 0.0f, &found[1].algo), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(Multiply(w, x, y, 1.0f, 0.0f, &found[1].algo, workspace, bytes - 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(Multiply(w, x, y, 1.0f, 0.0f, &found[1].algo, workspace, bytes), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t checked;
  EXPECT_EQ(
      cublasLtMatmulAlgoCheck(handle_, description_, w_, x_, y_, y_, &found[1].algo, &checked),
      CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(checked.workspaceSize, bytes);

  Describe<__half, __half>(shape);
  EXPECT_NE(Multiply(w, x, y, 1.0f, 0.0f, &found[0].algo), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasLtTest, TakesInjectedFaults) {
  Describe<__half, float>({8, 8, 8});
  InjectFault({.call = "cublasLtMatmul"});
  EXPECT_EQ(Multiply(nullptr, nullptr, nullptr), CUBLAS_STATUS_EXECUTION_FAILED);
}

}  // namespace
}  // namespace cuda_emulation
