// Products on tensor cores, one group of rows after the other, for weights of any format. A block
// computes 16 or 64 rows by 64 outputs; tiles of 32 columns of inputs and weights lie in shared
// memory twice, so that one is filled while the other is multiplied. Dense weights and inputs come
// by cp.async; quantized weights go through registers, where they are unpacked to T, 16 a thread.
// The smaller tile is for few rows a group, where most of the larger would multiply zeros; sums are
// the same in either.
#include "engine/ops/cuda/kernels/grouped_matmul.h"

#include "engine/ops/cuda/kernels/unpack.h"

namespace baton::engine::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTileOutputs = 64;
constexpr int kStep = 32;           // columns of a tile; a group of quantized weights has them all
constexpr int kStride = kStep + 8;  // elements; eight rows of 16 bytes then touch all banks once

template <class T, int kTileRows>
struct alignas(16) Tile {
  T x[kTileRows][kStride];
  T w[kTileOutputs][kStride];
};
template <class T, int kTileRows>
struct Tiles {
  Tile<T, kTileRows> tile[2];
};

// Where a block's rows are.
struct Place {
  int group = -1;  // -1: nothing to do
  int first_row = 0;
  int num_rows = 0;  // up to kTileRows
};

template <int kTileRows>
__device__ __forceinline__ Place FindPlace(const GroupedArguments& a) {
  int tile = blockIdx.y;
  if (a.offsets == nullptr)
    return {0, tile * kTileRows, min(kTileRows, a.num_rows - tile * kTileRows)};
  for (int group = 0; group < a.num_groups; ++group) {
    const int begin = a.offsets[group], end = a.offsets[group + 1];
    const int tiles = (end - begin + kTileRows - 1) / kTileRows;
    if (tile < tiles) {
      const int first = begin + tile * kTileRows;
      return {group, first, min(kTileRows, end - first)};
    }
    tile -= tiles;
  }
  return {};
}

// Inputs at columns [column, column + kStep); zeros beyond the rows and columns there are.
template <class T, int kTileRows>
__device__ __forceinline__ void FillInputs(const GroupedArguments& a, const Place& place,
                                           int column, Tile<T, kTileRows>& tile) {
  const T* x = static_cast<const T*>(a.x);
  for (int i = threadIdx.x; i < kTileRows * kStep / 8; i += kThreads) {
    const int row = i / (kStep / 8), offset = i % (kStep / 8) * 8;
    const bool exists = row < place.num_rows && column + offset < a.weights.columns;
    const int r = place.first_row + (exists ? row : 0);
    const T* from =
        x + static_cast<std::size_t>(a.x_rows == nullptr ? r : a.x_rows[r]) * a.x_stride;
    if (a.weights.column_order == nullptr) {
      gpu::CopyAsync16(&tile.x[row][offset], exists ? from + column + offset : from,
                       exists ? 16 : 0);
    } else {
      gpu::Vec8<T> vector{};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (exists) vector.v[j] = from[a.weights.column_order[column + offset + j]];
      }
      gpu::Store8(&tile.x[row][offset], vector);
    }
  }
}

// Dense weights of the block's outputs, which begin at row `first` of the matrix.
template <class T, int kTileRows>
__device__ __forceinline__ void FillDense(const WeightView& weights, int first, int count,
                                          int column, Tile<T, kTileRows>& tile) {
  const T* data = reinterpret_cast<const T*>(weights.data);
  for (int i = threadIdx.x; i < kTileOutputs * kStep / 8; i += kThreads) {
    const int row = i / (kStep / 8), offset = i % (kStep / 8) * 8;
    const bool exists = row < count && column + offset < weights.columns;
    const T* from = data + static_cast<std::size_t>(first + (exists ? row : 0)) * weights.columns;
    gpu::CopyAsync16(&tile.w[row][offset], exists ? from + column + offset : from, exists ? 16 : 0);
  }
}

// The thread's 16 quantized weights of a step, between their load and their use.
struct Fetched {
  PieceWords words;
  GroupScale scale;
};
static_assert(kTileOutputs * kStep == kThreads * kPiece);

template <WeightFormat kFormat>
__device__ __forceinline__ Fetched Fetch(const WeightView& weights, int first, int count,
                                         int column) {
  const int row = threadIdx.x / 2;
  if (row >= count) return {{}, {0.0f, 0.0f}};
  const int piece = column / kPiece + threadIdx.x % 2;
  return {LoadPiece<kFormat>(weights, first + row, piece),
          LoadScale<kFormat>(weights, first + row, column)};
}

template <WeightFormat kFormat, class T, int kTileRows>
__device__ __forceinline__ void FillUnpacked(const Fetched& fetched, Tile<T, kTileRows>& tile) {
  float values[kPiece];
  UnpackPiece<kFormat>(fetched.words, fetched.scale, values);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    gpu::Store8(&tile.w[threadIdx.x / 2][PieceColumn<kFormat>(threadIdx.x % 2, part)],
                Round8<T>(values + 8 * part));
  }
}

// How the four warps share a block's results: fragments of 16 rows by 8 outputs.
template <int kTileRows>
struct WarpShape {
  static constexpr int kWarpsDown = kTileRows == 64 ? 2 : 1;
  static constexpr int kWarpsAcross = 4 / kWarpsDown;
  static constexpr int kDown = kTileRows / kWarpsDown / 16;
  static constexpr int kAcross = kTileOutputs / kWarpsAcross / 8;
  static_assert(kAcross % 2 == 0);
  __device__ static int Row() {
    return static_cast<int>(threadIdx.x) / 32 / kWarpsAcross * kDown * 16;
  }
  __device__ static int Output() {
    return static_cast<int>(threadIdx.x) / 32 % kWarpsAcross * kAcross * 8;
  }
};

template <class T, int kTileRows>
using Sums = float[WarpShape<kTileRows>::kDown][WarpShape<kTileRows>::kAcross][4];

template <class T, int kTileRows>
__device__ __forceinline__ void MultiplyTile(const Tile<T, kTileRows>& tile,
                                             Sums<T, kTileRows>& sums) {
  using Shape = WarpShape<kTileRows>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kStep; k += 16) {
    std::uint32_t x[Shape::kDown][4];
#pragma unroll
    for (int i = 0; i < Shape::kDown; ++i) {
      gpu::LoadMatrix4<false>(x[i], &tile.x[Shape::Row() + 16 * i + lane % 16][k + lane / 16 * 8]);
    }
#pragma unroll
    for (int j = 0; j < Shape::kAcross; j += 2) {
      // Outputs 8 j .. 8 j + 15: for each eight the halves of the 16 columns.
      std::uint32_t w[4];
      gpu::LoadMatrix4<false>(
          w, &tile.w[Shape::Output() + 8 * j + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
      const std::uint32_t left[2] = {w[0], w[1]}, right[2] = {w[2], w[3]};
#pragma unroll
      for (int i = 0; i < Shape::kDown; ++i) {
        gpu::Mma16x8x16<T>(sums[i][j], x[i], left, sums[i][j]);
        gpu::Mma16x8x16<T>(sums[i][j + 1], x[i], right, sums[i][j + 1]);
      }
    }
  }
}

template <class Out, class T, int kTileRows>
__device__ __forceinline__ void WriteSums(const GroupedArguments& a, const Place& place,
                                          int first_output, const Sums<T, kTileRows>& sums) {
  using Shape = WarpShape<kTileRows>;
  const int lane = threadIdx.x % 32;
  const Out* bias = a.bias == nullptr
                        ? nullptr
                        : static_cast<const Out*>(a.bias) +
                              static_cast<std::size_t>(place.group) * a.rows_per_group;
#pragma unroll
  for (int i = 0; i < Shape::kDown; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kAcross; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = Shape::Row() + 16 * i + lane / 4 + e / 2 * 8;
        const int output = first_output + Shape::Output() + 8 * j + lane % 4 * 2 + e % 2;
        if (row >= place.num_rows || output >= a.rows_per_group) continue;
        Out* to = static_cast<Out*>(a.y) +
                  static_cast<std::size_t>(place.first_row + row) * a.y_stride + output;
        float value = sums[i][j][e];
        if (bias != nullptr) value += gpu::ToFloat(bias[output]);
        if (a.add) value += gpu::ToFloat(*to);
        *to = gpu::FromFloat<Out>(value);
      }
    }
  }
}

template <WeightFormat kFormat, class T, int kTileRows>
__global__ void __launch_bounds__(kThreads) GroupedTensorCoreTile(const GroupedArguments a) {
  constexpr bool kDense = kFormat == WeightFormat::kDense;
  auto& tiles = gpu::SharedMemory<Tiles<T, kTileRows>>();
  const Place place = FindPlace<kTileRows>(a);
  if (place.group < 0) return;  // the whole block
  const int first_output = static_cast<int>(blockIdx.x) * kTileOutputs;
  const int first = place.group * a.rows_per_group + first_output;
  const int count = min(kTileOutputs, a.rows_per_group - first_output);
  const int steps = (a.weights.columns + kStep - 1) / kStep;
  Fetched fetched{};
  const auto fill = [&](int step) {
    FillInputs<T, kTileRows>(a, place, step * kStep, tiles.tile[step % 2]);
    if constexpr (kDense) {
      FillDense<T, kTileRows>(a.weights, first, count, step * kStep, tiles.tile[step % 2]);
    } else {
      fetched = Fetch<kFormat>(a.weights, first, count, step * kStep);
    }
    gpu::CopyAsyncCommit();
  };
  const auto unpack = [&](int step) {
    if constexpr (!kDense) {
      FillUnpacked<kFormat, T, kTileRows>(fetched, tiles.tile[step % 2]);
    }
  };

  Sums<T, kTileRows> sums = {};
  fill(0);
  unpack(0);
  for (int step = 0; step < steps; ++step) {
    gpu::CopyAsyncWait<0>();
    // Also ends the reading of the other tile, which is filled next.
    __syncthreads();
    if (step + 1 < steps) fill(step + 1);
    MultiplyTile<T, kTileRows>(tiles.tile[step % 2], sums);
    if (step + 1 < steps) unpack(step + 1);
  }
  if (a.float_output) {
    WriteSums<float, T, kTileRows>(a, place, first_output, sums);
  } else {
    WriteSums<T, T, kTileRows>(a, place, first_output, sums);
  }
}

template <WeightFormat kFormat, class T, int kTileRows>
cudaError_t LaunchTiles(const GroupedArguments& a, cudaStream_t stream) {
  // Every group may end in a tile that is not full.
  const int row_tiles =
      (a.num_rows + kTileRows - 1) / kTileRows + (a.offsets == nullptr ? 0 : a.num_groups - 1);
  if (row_tiles > 65535) return cudaErrorInvalidValue;
  return gpu::Launch(GroupedTensorCoreTile<kFormat, T, kTileRows>,
                     {.grid = dim3((a.rows_per_group + kTileOutputs - 1) / kTileOutputs, row_tiles),
                      .block = dim3(kThreads),
                      .stream = stream},
                     a);
}

}  // namespace

cudaError_t GroupedMatmul(const GroupedArguments& a, cudaStream_t stream) {
  if (a.num_rows == 0) return cudaSuccess;
  if (a.num_rows < 0 || a.num_groups <= 0 || a.rows_per_group <= 0 || !Readable(a.weights) ||
      a.weights.rows != a.num_groups * a.rows_per_group || a.x_stride % 8 != 0 ||
      a.x_stride < a.weights.columns || a.y_stride < a.rows_per_group ||
      (a.offsets == nullptr && a.num_groups != 1)) {
    return cudaErrorInvalidValue;
  }
  return ForFormat(a.weights.format, [&](auto format) {
    return ForType(a.weights.type, [&](auto element) {
      constexpr WeightFormat kFormat = decltype(format)::value;
      using T = decltype(element);
      if (a.num_rows / a.num_groups <= 16) return LaunchTiles<kFormat, T, 16>(a, stream);
      return LaunchTiles<kFormat, T, 64>(a, stream);
    });
  });
}

}  // namespace baton::engine::cuda
