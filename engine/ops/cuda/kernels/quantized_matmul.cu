// Products with few rows. A warp computes two outputs for all rows: each lane reads 16 bytes of
// weights at a time, the block's inputs lie in shared memory. Reads every weight once: bound by
// device memory while the arithmetic, two instructions to unpack a weight and one for each row,
// stays below it, which is why it ends at 8 rows.
#include "engine/ops/cuda/kernels/quantized_matmul.h"

#include "engine/ops/cuda/kernels/unpack.h"
#include "gpu/reductions.h"

namespace baton::engine::cuda {
namespace {

// Outputs of a warp: what is read of the inputs and converted serves both.
constexpr int kOutputs = 2;
// Columns of inputs in shared memory at a time; a fixed number, since the lane that sums a column
// follows from it.
constexpr int kChunk = 2048;

// Columns that a lane reads in 16 bytes.
template <WeightFormat kFormat>
constexpr int kLaneColumns = kFormat == WeightFormat::kDense  ? 8
                             : kFormat == WeightFormat::kInt8 ? 16
                                                              : 32;

template <int kRows>
constexpr int kWarps = kRows >= 4 ? 8 : 4;  // more outputs share what is staged for many rows

// [row][lane's piece][column of it]. Pieces are padded by 16 bytes: eight lanes that read 16 bytes
// each touch all banks once.
template <WeightFormat kFormat, class T, int kRows>
struct alignas(16) StagedInputs {
  static constexpr int kColumns = kLaneColumns<kFormat>;
  static constexpr int kStride = kColumns + (kColumns > 8 ? 8 : 0);
  T values[kRows][kChunk / kColumns][kStride];
};

template <WeightFormat kFormat, class T, int kRows>
__device__ __forceinline__ void StageInputs(const FewRowsArguments& a, int first_column,
                                            StagedInputs<kFormat, T, kRows>& staged) {
  constexpr int kColumns = kLaneColumns<kFormat>;
  constexpr int kVectors = kChunk / 8;
  const T* x = static_cast<const T*>(a.x);
  for (int i = threadIdx.x; i < kRows * kVectors; i += 32 * kWarps<kRows>) {
    const int row = i / kVectors, offset = i % kVectors * 8;
    const int column = first_column + offset;
    gpu::Vec8<T> vector{};
    if (row < a.num_rows && column < a.weights.columns) {
      const T* from = x + static_cast<std::size_t>(row) * a.x_stride;
      if (a.weights.column_order == nullptr) {
        vector = gpu::Load8(from + column);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) vector.v[j] = from[a.weights.column_order[column + j]];
      }
    }
    gpu::Store8(&staged.values[row][offset / kColumns][offset % kColumns], vector);
  }
}

template <class T>
__device__ __forceinline__ void LoadFloats8(const T* from, float (&to)[8]) {
  const gpu::Vec8<T> vector = gpu::Load8(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = gpu::ToFloat(vector.v[i]);
}

__device__ __forceinline__ float Dot8(const float* w, const float (&x)[8], float sum) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(w[i], x[i], sum);
  return sum;
}

// sums[output][row] += the lane's 16 bytes of each output times the inputs at the same columns.
template <WeightFormat kFormat, class T, int kRows>
__device__ __forceinline__ void AddLanePiece(const WeightView& weights, const int (&rows)[kOutputs],
                                             int column, int slot,
                                             const StagedInputs<kFormat, T, kRows>& staged,
                                             float (&sums)[kOutputs][kRows]) {
  constexpr int kParts = kLaneColumns<kFormat> / 8;
  uint4 raw[kOutputs];
  GroupScale scale[kOutputs];
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
    constexpr int kColumns = kLaneColumns<kFormat>;
    raw[o] = reinterpret_cast<const uint4*>(weights.data +
                                            weights.row_bytes() * rows[o])[column / kColumns];
    if constexpr (kFormat != WeightFormat::kDense) {
      scale[o] = LoadScale<kFormat>(weights, rows[o], column);
    }
  }
  float products[kOutputs][kRows] = {};
  float inputs[kRows] = {};  // their sum, which a minimum multiplies
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    // Columns 8 * part .. + 7 of the lane's: for 4 bits, halves of the words of the other part.
    float codes[kOutputs][8];
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const std::uint32_t words[4] = {raw[o].x, raw[o].y, raw[o].z, raw[o].w};
      if constexpr (kFormat == WeightFormat::kDense) {
        const auto vector = *reinterpret_cast<const gpu::Vec8<T>*>(&raw[o]);
#pragma unroll
        for (int i = 0; i < 8; ++i) codes[o][i] = gpu::ToFloat(vector.v[i]);
      } else if constexpr (kFormat == WeightFormat::kInt8) {
        BytesToFloats(words[2 * part], codes[o]);
        BytesToFloats(words[2 * part + 1], codes[o] + 4);
      } else {
        const float zero = ZeroOf<kFormat>(scale[o]);
        const int shift = part / 2 * 4, word = part % 2 * 2;
        NibblesToFloats(words[word], shift, zero, codes[o]);
        NibblesToFloats(words[word + 1], shift, zero, codes[o] + 4);
      }
    }
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float x[8];
      LoadFloats8(&staged.values[row][slot][8 * part], x);
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) products[o][row] = Dot8(codes[o], x, products[o][row]);
      if constexpr (kFormat == WeightFormat::kInt4Min) {
#pragma unroll
        for (int i = 0; i < 8; ++i) inputs[row] += x[i];
      }
    }
  }
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float& sum = sums[o][row];
      if constexpr (kFormat == WeightFormat::kDense) {
        sum += products[o][row];
      } else {
        sum = fmaf(scale[o].scale, products[o][row], sum);
        if constexpr (kFormat == WeightFormat::kInt4Min) {
          sum = fmaf(scale[o].offset, inputs[row], sum);
        }
      }
    }
  }
}

template <class Out>
__device__ __forceinline__ void Put(const FewRowsArguments& a, int row, int output, float value) {
  Out* to = static_cast<Out*>(a.y) + static_cast<std::size_t>(row) * a.y_stride + output;
  if (a.bias != nullptr) value += gpu::ToFloat(static_cast<const Out*>(a.bias)[output]);
  if (a.add) value += gpu::ToFloat(*to);
  *to = gpu::FromFloat<Out>(value);
}

template <WeightFormat kFormat, class T, int kRows>
__global__ void __launch_bounds__(32 * kWarps<kRows>, 1)
    FewRowsWarpPerTwoOutputs(const FewRowsArguments a) {
  auto& staged = gpu::SharedMemory<StagedInputs<kFormat, T, kRows>>();
  constexpr int kColumns = kLaneColumns<kFormat>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first = (static_cast<int>(blockIdx.x) * kWarps<kRows> + warp) * kOutputs;
  int rows[kOutputs];  // beyond the last: the last once more, not written
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) rows[o] = min(first + o, a.weights.rows - 1);
  float sums[kOutputs][kRows] = {};
  for (int chunk = 0; chunk < a.weights.columns; chunk += kChunk) {
    __syncthreads();
    StageInputs<kFormat, T, kRows>(a, chunk, staged);
    __syncthreads();
#pragma unroll 1
    for (int slot = lane; slot < kChunk / kColumns; slot += 32) {
      const int column = chunk + slot * kColumns;
      if (column >= a.weights.columns) break;
      AddLanePiece<kFormat, T, kRows>(a.weights, rows, column, slot, staged, sums);
    }
  }
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const float total = gpu::WarpSum(sums[o][row]);
      if (lane != o * kRows + row || row >= a.num_rows || first + o >= a.weights.rows) continue;
      if (a.float_output) {
        Put<float>(a, row, first + o, total);
      } else {
        Put<T>(a, row, first + o, total);
      }
    }
  }
}

template <WeightFormat kFormat, class T, int kRows>
cudaError_t LaunchFewRows(const FewRowsArguments& a, cudaStream_t stream) {
  constexpr int kPerBlock = kOutputs * kWarps<kRows>;
  return gpu::Launch(FewRowsWarpPerTwoOutputs<kFormat, T, kRows>,
                     {.grid = dim3((a.weights.rows + kPerBlock - 1) / kPerBlock),
                      .block = dim3(32 * kWarps<kRows>),
                      .stream = stream},
                     a);
}

}  // namespace

cudaError_t FewRowsMatmul(const FewRowsArguments& a, cudaStream_t stream) {
  if (a.num_rows == 0) return cudaSuccess;
  if (a.num_rows < 0 || a.num_rows > kMaxFewRows || !Readable(a.weights) || a.x_stride % 8 != 0 ||
      a.x_stride < a.weights.columns || a.y_stride < a.weights.rows) {
    return cudaErrorInvalidValue;
  }
  return ForFormat(a.weights.format, [&](auto format) {
    return ForType(a.weights.type, [&](auto element) {
      constexpr WeightFormat kFormat = decltype(format)::value;
      using T = decltype(element);
      if (a.num_rows == 1) return LaunchFewRows<kFormat, T, 1>(a, stream);
      if (a.num_rows == 2) return LaunchFewRows<kFormat, T, 2>(a, stream);
      if (a.num_rows <= 4) return LaunchFewRows<kFormat, T, 4>(a, stream);
      return LaunchFewRows<kFormat, T, 8>(a, stream);
    });
  });
}

}  // namespace baton::engine::cuda
