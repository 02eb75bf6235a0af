#pragma once
#include "engine/ops/cuda/kernels/weight_view.h"
#include "gpu/portable.h"
#include "gpu/vector_access.h"

// Reading quantized weights inside kernels. The unit is a piece of 16 weights that one thread
// unpacks: 16 bytes of kInt8, 8 bytes of the 4-bit formats.
namespace baton::engine::cuda {

inline constexpr int kPiece = 16;

// First column of the piece's weights 0..7 (part 0) and 8..15 (part 1), for piece `piece` of a row.
// Pieces 2i and 2i + 1 make the 32 columns from 32 i; a byte of 4-bit codes holds columns 16 apart.
template <WeightFormat kFormat>
__device__ __forceinline__ int PieceColumn(int piece, int part) {
  if constexpr (kFormat == WeightFormat::kInt8) {
    return piece * kPiece + part * 8;
  } else {
    return piece / 2 * 32 + piece % 2 * 8 + part * 16;
  }
}

// What a group's codes are scaled by.
struct GroupScale {
  float scale;
  float offset;  // zero of kInt4Zero, minimum of kInt4Min
};

template <WeightFormat kFormat>
__device__ __forceinline__ GroupScale LoadScale(const WeightView& weights, int row, int column) {
  const std::uint16_t* scales = weights.scales + weights.scales_per_row() * row;
  const int group = column / weights.group;
  if constexpr (kFormat == WeightFormat::kInt4Zero || kFormat == WeightFormat::kInt4Min) {
    const __half2 pair = reinterpret_cast<const __half2*>(scales)[group];
    return {__half2float(pair.x), __half2float(pair.y)};
  } else {
    return {__half2float(reinterpret_cast<const __half*>(scales)[group]), 0.0f};
  }
}

// The integers 0..255 as floats at full rate: they are the low bits of 2^23 + integer, whose float
// pattern is 0x4b000000 | integer. Conversion instructions run at a quarter of the rate.
inline constexpr float kMagic = 8388608.0f;

// Codes 4i .. 4i+3 of the low (shift 0) or high (shift 4) halves of a word's bytes, less `zero`.
__device__ __forceinline__ void NibblesToFloats(std::uint32_t word, int shift, float zero,
                                                float* out) {
#pragma unroll
  for (int byte = 0; byte < 4; ++byte) {
    const std::uint32_t code = (word >> (8 * byte + shift)) & 0xfu;
    out[byte] = __uint_as_float(0x4b000000u | code) - (kMagic + zero);
  }
}

// The four signed bytes of a word.
__device__ __forceinline__ void BytesToFloats(std::uint32_t word, float* out) {
  const std::uint32_t biased = word ^ 0x80808080u;  // q + 128
#pragma unroll
  for (int byte = 0; byte < 4; ++byte) {
    out[byte] =
        __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7540u + byte)) - (kMagic + 128.0f);
  }
}

// What is subtracted from a code before it is scaled.
template <WeightFormat kFormat>
__device__ __forceinline__ float ZeroOf(const GroupScale& group) {
  return kFormat == WeightFormat::kInt4Zero ? group.offset
         : kFormat == WeightFormat::kInt4   ? 8.0f
                                            : 0.0f;
}

// The words of one piece: all four of kInt8, the first two of 4-bit formats.
struct PieceWords {
  std::uint32_t word[4];
};

template <WeightFormat kFormat>
__device__ __forceinline__ PieceWords LoadPiece(const WeightView& weights, int row, int piece) {
  const std::byte* data = weights.data + weights.row_bytes() * row;
  if constexpr (kFormat == WeightFormat::kInt8) {
    const uint4 words = reinterpret_cast<const uint4*>(data)[piece];
    return {{words.x, words.y, words.z, words.w}};
  } else {
    const uint2 words = reinterpret_cast<const uint2*>(data)[piece];
    return {{words.x, words.y, 0u, 0u}};
  }
}

// The exact weights of a piece: every product of a code and an f16 scale fits a float.
template <WeightFormat kFormat>
__device__ __forceinline__ void UnpackPiece(const PieceWords& piece, const GroupScale& group,
                                            float (&out)[kPiece]) {
  if constexpr (kFormat == WeightFormat::kInt8) {
#pragma unroll
    for (int word = 0; word < 4; ++word) BytesToFloats(piece.word[word], out + 4 * word);
  } else {
    const float zero = ZeroOf<kFormat>(group);
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      NibblesToFloats(piece.word[word], 0, zero, out + 4 * word);
      NibblesToFloats(piece.word[word], 4, zero, out + 8 + 4 * word);
    }
  }
#pragma unroll
  for (float& value : out) {
    value = kFormat == WeightFormat::kInt4Min ? fmaf(value, group.scale, group.offset)
                                              : value * group.scale;
  }
}

template <class T>
__device__ __forceinline__ gpu::Vec8<T> Round8(const float* values) {
  gpu::Vec8<T> rounded;
#pragma unroll
  for (int i = 0; i < 8; ++i) rounded.v[i] = gpu::FromFloat<T>(values[i]);
  return rounded;
}

// Calls `run` with std::integral_constant of the format; false for one it does not know.
template <class Run>
cudaError_t ForFormat(WeightFormat format, const Run& run) {
  switch (format) {
    case WeightFormat::kDense:
      return run(std::integral_constant<WeightFormat, WeightFormat::kDense>());
    case WeightFormat::kInt8:
      return run(std::integral_constant<WeightFormat, WeightFormat::kInt8>());
    case WeightFormat::kInt4:
      return run(std::integral_constant<WeightFormat, WeightFormat::kInt4>());
    case WeightFormat::kInt4Zero:
      return run(std::integral_constant<WeightFormat, WeightFormat::kInt4Zero>());
    case WeightFormat::kInt4Min:
      return run(std::integral_constant<WeightFormat, WeightFormat::kInt4Min>());
  }
  return cudaErrorInvalidValue;
}

// Calls `run` with a value of the element type.
template <class Run>
cudaError_t ForType(ElementType type, const Run& run) {
  return type == ElementType::kBF16 ? run(__nv_bfloat16()) : run(__half());
}

// Whether the view is what a kernel can read in 16-byte pieces.
inline bool Readable(const WeightView& weights) {
  const int unit = weights.quantized() ? weights.group : 8;
  return weights.rows > 0 && weights.columns > 0 && unit > 0 && weights.columns % unit == 0 &&
         (!weights.quantized() || weights.group % kWeightGroup == 0) && weights.data != nullptr &&
         weights.quantized() == (weights.scales != nullptr) &&
         (weights.quantized() || weights.column_order == nullptr);
}

}  // namespace baton::engine::cuda
