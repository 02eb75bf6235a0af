// Quantized weights as T or float. A thread unpacks 16 weights: reads 8 or 16 bytes, writes 32; the
// writing bounds it.
#include "engine/ops/cuda/kernels/dequantize.h"

#include "engine/ops/cuda/kernels/unpack.h"

namespace baton::engine::cuda {
namespace {

constexpr int kThreads = 256;

template <WeightFormat kFormat, class T>
__global__ void __launch_bounds__(kThreads)
    DequantizeThreadPerPiece(const WeightView weights, T* __restrict__ out) {
  const int pieces_per_row = weights.columns / kPiece;
  const int piece = static_cast<int>(blockIdx.x) * kThreads + threadIdx.x;
  if (piece >= pieces_per_row) return;
  // The grid's second dimension is bounded; a block walks over rows that far apart.
  for (int row = blockIdx.y; row < weights.rows; row += gridDim.y) {
    float values[kPiece];
    UnpackPiece<kFormat>(LoadPiece<kFormat>(weights, row, piece),
                         LoadScale<kFormat>(weights, row, piece * kPiece), values);
    T* to = out + static_cast<std::size_t>(row) * weights.columns;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int column = PieceColumn<kFormat>(piece, part);
      const gpu::Vec8<T> rounded = Round8<T>(values + 8 * part);
      if (weights.column_order == nullptr) {
        gpu::Store8(to + column, rounded);
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) to[weights.column_order[column + i]] = rounded.v[i];
      }
    }
  }
}

// 8 columns a thread when dense, 16 else.
template <WeightFormat kFormat, class T>
__device__ __forceinline__ void EmbedRow(const WeightView& weights, int row, float scale,
                                         float* __restrict__ out) {
  if constexpr (kFormat == WeightFormat::kDense) {
    const T* from =
        reinterpret_cast<const T*>(weights.data) + static_cast<std::size_t>(row) * weights.columns;
    for (int column = threadIdx.x * 8; column < weights.columns; column += kThreads * 8) {
      const gpu::Vec8<T> values = gpu::Load8(from + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) out[column + i] = gpu::ToFloat(values.v[i]) * scale;
    }
  } else {
    for (int piece = threadIdx.x; piece < weights.columns / kPiece; piece += kThreads) {
      float values[kPiece];
      UnpackPiece<kFormat>(LoadPiece<kFormat>(weights, row, piece),
                           LoadScale<kFormat>(weights, row, piece * kPiece), values);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        const int column = PieceColumn<kFormat>(piece, i / 8) + i % 8;
        const int input = weights.column_order == nullptr ? column : weights.column_order[column];
        out[input] = values[i] * scale;
      }
    }
  }
}

template <WeightFormat kFormat, class T>
__global__ void __launch_bounds__(kThreads)
    EmbedBlockPerToken(const WeightView weights, const int* __restrict__ tokens, int first_token,
                       float scale, float* __restrict__ x) {
  float* out = x + static_cast<std::size_t>(blockIdx.x) * weights.columns;
  const int row = tokens[blockIdx.x] - first_token;
  if (row < 0 || row >= weights.rows) {
    for (int column = threadIdx.x; column < weights.columns; column += kThreads) {
      out[column] = 0.0f;
    }
    return;
  }
  EmbedRow<kFormat, T>(weights, row, scale, out);
}

}  // namespace

cudaError_t Dequantize(const WeightView& weights, void* out, cudaStream_t stream) {
  if (!Readable(weights) || !weights.quantized()) return cudaErrorInvalidValue;
  const int blocks = (weights.columns / kPiece + kThreads - 1) / kThreads;
  const int rows = weights.rows < 65535 ? weights.rows : 65535;
  return ForFormat(weights.format, [&](auto format) {
    return ForType(weights.type, [&](auto element) {
      using T = decltype(element);
      constexpr WeightFormat kFormat = decltype(format)::value;
      if constexpr (kFormat == WeightFormat::kDense) {
        return cudaErrorInvalidValue;
      } else {
        return gpu::Launch(DequantizeThreadPerPiece<kFormat, T>,
                           {.grid = dim3(blocks, rows), .block = dim3(kThreads), .stream = stream},
                           weights, static_cast<T*>(out));
      }
    });
  });
}

cudaError_t EmbedRows(const WeightView& weights, const int* tokens, int num_tokens, int first_token,
                      float scale, float* x, cudaStream_t stream) {
  if (num_tokens == 0) return cudaSuccess;
  if (num_tokens < 0 || !Readable(weights)) return cudaErrorInvalidValue;
  return ForFormat(weights.format, [&](auto format) {
    return ForType(weights.type, [&](auto element) {
      return gpu::Launch(EmbedBlockPerToken<decltype(format)::value, decltype(element)>,
                         {.grid = dim3(num_tokens), .block = dim3(kThreads), .stream = stream},
                         weights, tokens, first_token, scale, x);
    });
  });
}

}  // namespace baton::engine::cuda
