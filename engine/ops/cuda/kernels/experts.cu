// Mixtures of experts: choice of experts, grouping of rows by expert, and the sum of what they
// give. Nothing here needs the host to know how many rows an expert gets.
#include "engine/ops/cuda/kernels/experts.h"

#include <cmath>
#include <cstddef>

#include "gpu/reductions.h"
#include "gpu/vector_access.h"

namespace baton::engine::cuda {
namespace {

using gpu::kFullWarp;
using Key = unsigned long long;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// Orders like (logit ascending, index descending), so that the greatest key is the best expert.
__device__ __forceinline__ Key KeyOf(float logit, int expert) {
  unsigned ordered = 0;  // of NaN: below everything
  if (logit == logit) {
    const unsigned bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);
    ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  }
  return Key{ordered} << 32 | (0xffffffffu - static_cast<unsigned>(expert));
}

__device__ __forceinline__ int ExpertOf(Key key) {
  return static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}

// The greatest key below `bound` among a row's logits. The lanes of a warp call it together.
__device__ Key BestBelow(const float* logits, int num_experts, Key bound, int lane) {
  Key best = 0;
  for (int expert = lane; expert < num_experts; expert += 32) {
    const Key key = KeyOf(logits[expert], expert);
    if (key < bound && key > best) best = key;
  }
  for (int distance = 16; distance > 0; distance >>= 1) {
    const Key other = __shfl_xor_sync(kFullWarp, best, distance);
    if (other > best) best = other;
  }
  return best;
}

// Lane j's element of the chosen ones in the order of their index; `expert` is what the lane chose.
__device__ int InIndexOrder(int expert, int count, int lane) {
  int sorted = -1;
  for (int j = 0; j < count; ++j) {
    const int other = __shfl_sync(kFullWarp, expert, j);
    const unsigned before = __ballot_sync(kFullWarp, lane < count && expert < other);
    if (__popc(before) == lane) sorted = other;
  }
  return sorted;
}

__device__ double SumOfAll(const float* logits, int num_experts, double highest, int lane) {
  double sum = 0;
  for (int expert = lane; expert < num_experts; expert += 32) sum += exp(logits[expert] - highest);
  for (int distance = 16; distance > 0; distance >>= 1) {
    sum += __shfl_xor_sync(kFullWarp, sum, distance);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads, 1)
    ChooseExpertsWarpPerRow(ExpertsShape shape, const float* __restrict__ logits,
                            const int* __restrict__ row_sequence, bool normalize,
                            ExpertChoice choice) {
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= shape.num_rows) return;
  const int count = shape.experts_per_row;
  const std::size_t pair = static_cast<std::size_t>(row) * count + lane;
  if (row_sequence != nullptr && row_sequence[row] < 0) {
    if (lane < count) {
      choice.experts[pair] = -1;
      choice.weights[pair] = 0.0f;
    }
    return;
  }
  const float* own = logits + static_cast<std::size_t>(row) * shape.num_experts;
  Key bound = ~Key{0};
  int expert = 0;
  for (int j = 0; j < count; ++j) {
    bound = BestBelow(own, shape.num_experts, bound, lane);
    if (lane == j) expert = ExpertOf(bound);
  }
  const double highest = own[__shfl_sync(kFullWarp, expert, 0)];
  expert = InIndexOrder(expert, count, lane);
  const double unscaled = lane < count ? exp(own[expert] - highest) : 0.0;
  double total = 0;
  if (normalize) {
    for (int j = 0; j < count; ++j) total += __shfl_sync(kFullWarp, unscaled, j);
  } else {
    total = SumOfAll(own, shape.num_experts, highest, lane);
  }
  if (lane < count) {
    choice.experts[pair] = expert;
    choice.weights[pair] = static_cast<float>(unscaled / total);
  }
}

__device__ __forceinline__ int WarpSum(int x) {
  for (int distance = 16; distance > 0; distance >>= 1) {
    x += __shfl_xor_sync(kFullWarp, x, distance);
  }
  return x;
}

// One block per expert, which reads all pairs twice (from L2 but for the first block): how many go
// to lower experts gives its offset, so that no block waits for another.
template <int kGroupThreads>
__global__ void __launch_bounds__(kGroupThreads)
    GroupBlockPerExpert(ExpertsShape shape, const int* __restrict__ experts, ExpertGroups groups) {
  constexpr int kGroupWarps = kGroupThreads / 32;
  struct Counts {
    int below[kGroupWarps], own[kGroupWarps];
  };
  Counts& counts = gpu::SharedMemory<Counts>();
  const int expert = static_cast<int>(blockIdx.x);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int num_pairs = shape.num_rows * shape.experts_per_row;
  const int per_warp = (num_pairs + kGroupThreads - 1) / kGroupThreads * 32;
  const int begin = warp * per_warp;
  const int end = min(begin + per_warp, num_pairs);
  int below = 0, own = 0;
  for (int pair = begin + lane; pair < end; pair += 32) {
    below += experts[pair] >= 0 && experts[pair] < expert;
    own += experts[pair] == expert;
  }
  below = WarpSum(below);
  own = WarpSum(own);
  if (lane == 0) {
    counts.below[warp] = below;
    counts.own[warp] = own;
  }
  __syncthreads();
  int offset = 0, place = 0, used = 0;
  for (int other = 0; other < kGroupWarps; ++other) {
    offset += counts.below[other];
    place += other < warp ? counts.own[other] : 0;
    used += counts.below[other] + counts.own[other];
  }
  place += offset;
  for (int base = begin; base < end; base += 32) {
    const int pair = base + lane;
    const bool is_own = pair < end && experts[pair] == expert;
    const unsigned lanes = __ballot_sync(kFullWarp, is_own);
    if (is_own) {
      const int at = place + __popc(lanes & ((1u << lane) - 1));
      groups.place_rows[at] = pair / shape.experts_per_row;
      groups.place_experts[at] = expert;
      groups.pair_places[pair] = at;
    }
    place += __popc(lanes);
  }
  if (threadIdx.x == 0) groups.offsets[expert] = offset;
  if (expert != shape.num_experts - 1) return;
  if (threadIdx.x == 0) groups.offsets[shape.num_experts] = used;
  for (int at = used + static_cast<int>(threadIdx.x); at < num_pairs; at += kGroupThreads) {
    groups.place_rows[at] = 0;
    groups.place_experts[at] = -1;
  }
  for (int pair = threadIdx.x; pair < num_pairs; pair += kGroupThreads) {
    if (experts[pair] < 0) groups.pair_places[pair] = -1;
  }
}

__global__ void __launch_bounds__(kThreads)
    GatherBlockPerPlace(const int* __restrict__ num_used, const int* __restrict__ place_rows,
                        const uint4* __restrict__ n, int vectors, uint4* __restrict__ packed) {
  const int place = static_cast<int>(blockIdx.x);
  if (place >= *num_used) return;
  const uint4* from = n + static_cast<std::size_t>(place_rows[place]) * vectors;
  uint4* to = packed + static_cast<std::size_t>(place) * vectors;
  for (int i = threadIdx.x; i < vectors; i += kThreads) to[i] = from[i];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    CombineThreadPer8(ExpertsShape shape, ExpertChoice choice, const int* __restrict__ pair_places,
                      const T* __restrict__ expert_out, int columns, CombineOptions options,
                      float* __restrict__ y) {
  const int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8;
  if (column >= columns) return;
  const std::size_t row = blockIdx.x;
  float sum[8] = {};
  for (int j = 0; j < shape.experts_per_row; ++j) {
    const std::size_t pair = row * shape.experts_per_row + j;
    const int expert = choice.experts[pair];
    if (expert < 0) continue;
    const std::size_t place = pair_places == nullptr ? pair : pair_places[pair];
    float given[8];
    gpu::LoadFloats8(expert_out + place * columns + column, given);
    const float weight = choice.weights[pair];
    for (int i = 0; i < 8; ++i) {
      if (options.bias != nullptr) {
        given[i] += options.bias[static_cast<std::size_t>(expert) * columns + column + i];
      }
      sum[i] += weight * given[i];
    }
  }
  float* to = y + row * columns + column;
  if (options.add) {
    float before[8];
    gpu::LoadFloats8(to, before);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += before[i];
  }
  gpu::StoreFloats8(to, sum);
}

bool IsComputable(const ExpertsShape& shape) {
  return shape.num_rows >= 0 && shape.num_experts > 0 && shape.num_experts <= kMaxExperts &&
         shape.experts_per_row > 0 && shape.experts_per_row <= kMaxExpertsPerRow &&
         shape.experts_per_row <= shape.num_experts &&
         shape.num_rows <= 0x7fffffff / kMaxExpertsPerRow;
}

}  // namespace

cudaError_t ChooseExperts(const ExpertsShape& shape, const float* logits, const int* row_sequence,
                          bool normalize, const ExpertChoice& choice, cudaStream_t stream) {
  if (!IsComputable(shape)) return cudaErrorInvalidValue;
  if (shape.num_rows == 0) return cudaSuccess;
  return gpu::Launch(ChooseExpertsWarpPerRow,
                     {.grid = dim3((shape.num_rows + kWarps - 1) / kWarps),
                      .block = dim3(kThreads),
                      .stream = stream},
                     shape, logits, row_sequence, normalize, choice);
}

cudaError_t GroupByExpert(const ExpertsShape& shape, const int* experts, const ExpertGroups& groups,
                          cudaStream_t stream) {
  if (!IsComputable(shape)) return cudaErrorInvalidValue;
  // Few threads suffice at decode; at prefill each block has tens of thousands of pairs to read.
  constexpr int kFewPairs = 1024, kFewThreads = 128, kManyThreads = 1024;
  if (shape.num_pairs() <= kFewPairs) {
    return gpu::Launch(
        GroupBlockPerExpert<kFewThreads>,
        {.grid = dim3(shape.num_experts), .block = dim3(kFewThreads), .stream = stream}, shape,
        experts, groups);
  }
  return gpu::Launch(
      GroupBlockPerExpert<kManyThreads>,
      {.grid = dim3(shape.num_experts), .block = dim3(kManyThreads), .stream = stream}, shape,
      experts, groups);
}

template <class T>
cudaError_t GatherForExperts(const ExpertsShape& shape, const ExpertGroups& groups, const T* n,
                             int columns, T* packed, cudaStream_t stream) {
  if (!IsComputable(shape) || columns <= 0 || columns * sizeof(T) % sizeof(uint4) != 0) {
    return cudaErrorInvalidValue;
  }
  if (shape.num_rows == 0) return cudaSuccess;
  const int vectors = static_cast<int>(columns * sizeof(T) / sizeof(uint4));
  return gpu::Launch(GatherBlockPerPlace,
                     {.grid = dim3(shape.num_pairs()), .block = dim3(kThreads), .stream = stream},
                     groups.offsets + shape.num_experts, groups.place_rows,
                     reinterpret_cast<const uint4*>(n), vectors, reinterpret_cast<uint4*>(packed));
}

template <class T>
cudaError_t CombineExperts(const ExpertsShape& shape, const ExpertChoice& choice,
                           const int* pair_places, const T* expert_out, int columns,
                           const CombineOptions& options, float* y, cudaStream_t stream) {
  if (!IsComputable(shape) || columns <= 0 || columns % 8 != 0) return cudaErrorInvalidValue;
  if (shape.num_rows == 0) return cudaSuccess;
  const int chunks = (columns / 8 + kThreads - 1) / kThreads;
  return gpu::Launch(
      CombineThreadPer8<T>,
      {.grid = dim3(shape.num_rows, chunks), .block = dim3(kThreads), .stream = stream}, shape,
      choice, pair_places, expert_out, columns, options, y);
}

template cudaError_t GatherForExperts(const ExpertsShape&, const ExpertGroups&,
                                      const __nv_bfloat16*, int, __nv_bfloat16*, cudaStream_t);
template cudaError_t GatherForExperts(const ExpertsShape&, const ExpertGroups&, const __half*, int,
                                      __half*, cudaStream_t);
template cudaError_t GatherForExperts(const ExpertsShape&, const ExpertGroups&, const float*, int,
                                      float*, cudaStream_t);
template cudaError_t CombineExperts(const ExpertsShape&, const ExpertChoice&, const int*,
                                    const __nv_bfloat16*, int, const CombineOptions&, float*,
                                    cudaStream_t);
template cudaError_t CombineExperts(const ExpertsShape&, const ExpertChoice&, const int*,
                                    const __half*, int, const CombineOptions&, float*,
                                    cudaStream_t);
template cudaError_t CombineExperts(const ExpertsShape&, const ExpertChoice&, const int*,
                                    const float*, int, const CombineOptions&, float*, cudaStream_t);

}  // namespace baton::engine::cuda
