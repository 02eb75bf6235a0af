// The product itself: both operands as rows that are contiguous along k, then dot products in
// vectors of eight floats. Compiled for AVX2, as the kernels are.
#include "cuda_emulation/cublaslt/multiply.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <immintrin.h>

#include <algorithm>
#include <vector>

namespace cuda_emulation {
namespace {

constexpr std::uint64_t kRowTile = 4;
constexpr std::uint64_t kColumnTile = 2;
constexpr std::uint64_t kFloatsPerVector = 8;
constexpr std::uint64_t kShortsPerVector = 16;

std::uint64_t RoundUp(std::uint64_t x, std::uint64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

std::uint64_t At(const MatrixLayout& layout, std::uint64_t row, std::uint64_t column) {
  const auto leading = static_cast<std::uint64_t>(layout.leading);
  return layout.order == CUBLASLT_ORDER_COL ? column * leading + row : row * leading + column;
}

float ToFloat(float x) { return x; }
float ToFloat(__half x) { return _cvtsh_ss(__half_as_ushort(x)); }
float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
std::int16_t ToShort(std::int8_t x) { return x; }

// Row `line` of the operand as seen by the product (a row of op(a), a column of op(b)), k elements.
struct Lines {
  const void* data;
  MatrixLayout layout;
  bool along_columns;  // line i is column i of the stored matrix

  template <class In, class Out, class Convert>
  void Copy(std::uint64_t line, std::uint64_t k, Out* to, const Convert& convert) const {
    const In* from = static_cast<const In*>(data);
    const std::uint64_t first = along_columns ? At(layout, 0, line) : At(layout, line, 0);
    const std::uint64_t second = along_columns ? At(layout, 1, line) : At(layout, line, 1);
    const std::uint64_t step = second - first;
    if (step == 1) {
      for (std::uint64_t i = 0; i < k; ++i) to[i] = convert(from[first + i]);
    } else {
      for (std::uint64_t i = 0; i < k; ++i) to[i] = convert(from[first + i * step]);
    }
  }

  void Copy(std::uint64_t line, std::uint64_t k, float* to) const {
    const auto convert = [](auto x) { return ToFloat(x); };
    switch (layout.type) {
      case CUDA_R_16F:
        return Copy<__half>(line, k, to, convert);
      case CUDA_R_16BF:
        return Copy<__nv_bfloat16>(line, k, to, convert);
      default:
        return Copy<float>(line, k, to, convert);
    }
  }
  void Copy(std::uint64_t line, std::uint64_t k, std::int16_t* to) const {
    Copy<std::int8_t>(line, k, to, [](std::int8_t x) { return ToShort(x); });
  }
};

float Sum(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
std::int32_t Sum(__m256i v) {
  alignas(32) std::int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), v);
  std::int32_t sum = 0;
  for (const std::int32_t lane : lanes) sum += lane;
  return sum;
}

// sums[r][c] += dot of row r of `a` and row c of `b` over [from, to), multiples of the vector.
void DotTile(const float* a, const float* b, std::uint64_t stride, std::uint64_t from,
             std::uint64_t to, float (&sums)[kRowTile][kColumnTile]) {
  __m256 lanes[kRowTile][kColumnTile];
  for (auto& row : lanes) {
    for (__m256& lane : row) lane = _mm256_setzero_ps();
  }
  for (std::uint64_t i = from; i < to; i += kFloatsPerVector) {
    __m256 columns[kColumnTile];
    for (std::uint64_t c = 0; c < kColumnTile; ++c)
      columns[c] = _mm256_loadu_ps(b + c * stride + i);
    for (std::uint64_t r = 0; r < kRowTile; ++r) {
      const __m256 row = _mm256_loadu_ps(a + r * stride + i);
      for (std::uint64_t c = 0; c < kColumnTile; ++c) {
        lanes[r][c] = _mm256_fmadd_ps(row, columns[c], lanes[r][c]);
      }
    }
  }
  for (std::uint64_t r = 0; r < kRowTile; ++r) {
    for (std::uint64_t c = 0; c < kColumnTile; ++c) sums[r][c] += Sum(lanes[r][c]);
  }
}

void DotTile(const std::int16_t* a, const std::int16_t* b, std::uint64_t stride, std::uint64_t from,
             std::uint64_t to, std::int32_t (&sums)[kRowTile][kColumnTile]) {
  const auto load = [](const std::int16_t* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  };
  for (std::uint64_t r = 0; r < kRowTile; ++r) {
    for (std::uint64_t c = 0; c < kColumnTile; ++c) {
      __m256i lanes = _mm256_setzero_si256();
      for (std::uint64_t i = from; i < to; i += kShortsPerVector) {
        lanes = _mm256_add_epi32(
            lanes, _mm256_madd_epi16(load(a + r * stride + i), load(b + c * stride + i)));
      }
      sums[r][c] += Sum(lanes);
    }
  }
}

// Writes one element of d from its sum over k.
class Writer {
 public:
  Writer(const MatmulProblem& problem, const MatmulScales& scales, const void* c, void* d)
      : problem_(problem), scales_(scales), c_(c), d_(d) {}

  void Write(std::uint64_t row, std::uint64_t column, float sum) const {
    float value = scales_.alpha * sum;
    const cudaDataType_t type = problem_.d.type;
    if (scales_.beta != 0.0f) value += scales_.beta * Get(type, c_, At(problem_.c, row, column));
    if (problem_.description.epilogue == CUBLASLT_EPILOGUE_BIAS) {
      value += Get(type, problem_.description.bias, row);
    }
    const std::uint64_t at = At(problem_.d, row, column);
    if (type == CUDA_R_16F) {
      static_cast<__half*>(d_)[at] = __float2half_rn(value);
    } else if (type == CUDA_R_16BF) {
      static_cast<__nv_bfloat16*>(d_)[at] = __float2bfloat16_rn(value);
    } else {
      static_cast<float*>(d_)[at] = value;
    }
  }

  void Write(std::uint64_t row, std::uint64_t column, std::int32_t sum) const {
    std::int32_t value = scales_.int_alpha * sum;
    if (scales_.int_beta != 0) {
      value += scales_.int_beta * static_cast<const std::int32_t*>(c_)[At(problem_.c, row, column)];
    }
    static_cast<std::int32_t*>(d_)[At(problem_.d, row, column)] = value;
  }

 private:
  static float Get(cudaDataType_t type, const void* data, std::uint64_t at) {
    if (type == CUDA_R_16F) return ToFloat(static_cast<const __half*>(data)[at]);
    if (type == CUDA_R_16BF) return ToFloat(static_cast<const __nv_bfloat16*>(data)[at]);
    return static_cast<const float*>(data)[at];
  }

  const MatmulProblem& problem_;
  const MatmulScales& scales_;
  const void* c_;
  void* d_;
};

// The first `k` elements of each row of a panel count; the rest, and the rows of an unfinished
// tile, are zero.
template <class Element, class Total>
void MultiplyLines(const MatmulProblem& problem, const Lines& rows, const Lines& columns,
                   std::uint64_t vector, std::uint32_t splits, const Writer& writer) {
  const std::uint64_t k = problem.k, stride = RoundUp(k, vector);
  const std::uint64_t split = RoundUp((stride + splits - 1) / splits, vector);
  std::vector<Element> b(RoundUp(problem.n, kColumnTile) * stride);
  for (std::uint64_t j = 0; j < problem.n; ++j) columns.Copy(j, k, b.data() + j * stride);
  std::vector<Element> a(kRowTile * stride);
  for (std::uint64_t i = 0; i < problem.m; i += kRowTile) {
    const std::uint64_t num_rows = std::min(kRowTile, problem.m - i);
    for (std::uint64_t r = 0; r < num_rows; ++r) rows.Copy(i + r, k, a.data() + r * stride);
    for (std::uint64_t j = 0; j < problem.n; j += kColumnTile) {
      Total sums[kRowTile][kColumnTile] = {};
      for (std::uint64_t from = 0; from < stride; from += split) {
        DotTile(a.data(), b.data() + j * stride, stride, from, std::min(stride, from + split),
                sums);
      }
      for (std::uint64_t r = 0; r < num_rows; ++r) {
        for (std::uint64_t c = 0; c < std::min(kColumnTile, problem.n - j); ++c) {
          writer.Write(i + r, j + c, sums[r][c]);
        }
      }
    }
  }
}

}  // namespace

void Multiply(const MatmulProblem& problem, const MatmulScales& scales, std::uint32_t splits,
              const void* a, const void* b, const void* c, void* d) {
  const Lines rows{a, problem.a, problem.description.transpose_a == CUBLAS_OP_T};
  const Lines columns{b, problem.b, problem.description.transpose_b == CUBLAS_OP_N};
  const Writer writer(problem, scales, c, d);
  if (problem.a.type == CUDA_R_8I) {
    MultiplyLines<std::int16_t, std::int32_t>(problem, rows, columns, kShortsPerVector, splits,
                                              writer);
  } else {
    MultiplyLines<float, float>(problem, rows, columns, kFloatsPerVector, splits, writer);
  }
}

}  // namespace cuda_emulation
