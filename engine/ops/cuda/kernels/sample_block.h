#pragma once
#include "engine/ops/cuda/kernels/sample_math.h"
#include "gpu/reductions.h"

// What the threads of a block do together while they choose one token: reductions, the best few
// candidates, sums and draws in the order of ids. Every function is called by all kThreads threads;
// what it returns is the same for all unless it says otherwise.
namespace baton::engine::cuda {

inline constexpr int kSampleChunk = 1024;     // ids summed together, as in softmax_weights.cc
inline constexpr int kMaxSampleChunks = 512;  // hence vocabularies of at most 524,288
inline constexpr int kMaxSorted = 1024;       // candidates that are drawn from best first
inline constexpr int kMaxGathered = 2048;     // room in which these are looked for
inline constexpr int kMassBuckets = (0x3F800000 >> 18) + 1;  // as in nucleus_selector.cc

struct SampleScratch {
  SampleKey words[kMassBuckets];  // candidates' keys; or masses of buckets
  alignas(16) float weights[kSampleChunk];
  double chunk_sums[kMaxSampleChunks];
  double warp_sums[32];
  SampleKey warp_keys[32];
  SampleKey key;
  double value;
  int count, chunk, token;
  bool inside;
};
static_assert(kMaxGathered <= kMassBuckets);

// One row of logits, and what makes weights of them.
struct SampleLogits {
  const float* logits;  // [vocab]
  int vocab;
  SampleKey best_key;
  float best;  // the logit of that key, finite
  float temperature;

  __device__ float Logit(int id) const { return SanitizedLogit(logits[id]); }
  __device__ SampleKey Key(int id) const { return LogitKey(Logit(id), id); }
  __device__ float Weight(int id) const {
    return ExpOfNegative(__fdiv_rn(__fsub_rn(Logit(id), best), temperature));
  }
};

template <int kThreads>
__device__ double SampleBlockSum(SampleScratch& scratch, double x) {
  for (int distance = 16; distance > 0; distance >>= 1) {
    x += __shfl_xor_sync(gpu::kFullWarp, x, distance);
  }
  __syncthreads();  // the slots may still be read from the last use
  if (threadIdx.x % 32 == 0) scratch.warp_sums[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += scratch.warp_sums[warp];
  return sum;
}

// To be called once: nothing keeps a second call from writing what the first still reads.
template <int kThreads>
__device__ SampleKey SampleBlockMax(SampleScratch& scratch, SampleKey key) {
  for (int distance = 16; distance > 0; distance >>= 1) {
    const SampleKey other = __shfl_xor_sync(gpu::kFullWarp, key, distance);
    if (other > key) key = other;
  }
  if (threadIdx.x % 32 == 0) scratch.warp_keys[threadIdx.x / 32] = key;
  __syncthreads();
  SampleKey best = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) {
    if (scratch.warp_keys[warp] > best) best = scratch.warp_keys[warp];
  }
  return best;
}

// The greatest key in [low, high] of which `holds`, which holds of `low` and of everything below a
// key of which it holds. A pass over the logits per bit: for what no faster way is worth writing.
template <class Holds>
__device__ SampleKey GreatestThatHolds(SampleKey low, SampleKey high, const Holds& holds) {
  while (low < high) {
    const SampleKey middle = low + (high - low) / 2 + 1;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Sorts scratch.words[0, count) best first: a bitonic network. count <= kMaxGathered.
template <int kThreads>
__device__ void SortBestFirst(SampleScratch& scratch, int count) {
  int size = 1;
  while (size < count) size *= 2;
  for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kThreads) {
    scratch.words[i] = 0;  // worse than every key
  }
  __syncthreads();
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (int pair = threadIdx.x; pair < size / 2; pair += kThreads) {
        const int i = 2 * pair - pair % distance, j = i + distance;
        const SampleKey a = scratch.words[i], b = scratch.words[j];
        const bool descending = (i & run) == 0;
        if ((a < b) == descending) {
          scratch.words[i] = b;
          scratch.words[j] = a;
        }
      }
      __syncthreads();
    }
  }
}

// Puts the keys of which `wanted` into scratch.words, in any order, and returns how many there are,
// which may be more than the kMaxGathered that fit. A barrier lies between what it returns and the
// next call.
template <int kThreads, class KeyOf, class Wanted>
__device__ int Gather(SampleScratch& scratch, int vocab, const KeyOf& key_of,
                      const Wanted& wanted) {
  if (threadIdx.x == 0) scratch.count = 0;
  __syncthreads();
  for (int id = threadIdx.x; id < vocab; id += kThreads) {
    const SampleKey key = key_of(id);
    if (!wanted(key)) continue;
    const int at = atomicAdd(&scratch.count, 1);
    if (at < kMaxGathered) scratch.words[at] = key;
  }
  __syncthreads();
  return scratch.count;
}

// The key that `count` logits reach, and no greater one: the count-th best, which is at least
// `low`. 1 <= count <= vocab.
template <int kThreads>
__device__ SampleKey KeyOfRank(SampleScratch& scratch, const SampleLogits& row, int count,
                               SampleKey low) {
  return GreatestThatHolds(low, row.best_key, [&](SampleKey key) {
    int reached = 0;
    for (int id = threadIdx.x; id < row.vocab; id += kThreads) reached += row.Key(id) >= key;
    return SampleBlockSum<kThreads>(scratch, reached) >= count;
  });
}

// Sorts the `count` best logits' keys into the front of scratch.words. `own_best` is the best key
// of the ids congruent to the thread's number modulo kThreads: the count-th best of these bounds
// the count-th best of all from below, mostly closely. 1 <= count <= min(vocab, kMaxSorted). To be
// called before anything else uses scratch.words.
template <int kThreads>
__device__ void SortTop(SampleScratch& scratch, const SampleLogits& row, int count,
                        SampleKey own_best) {
  SampleKey bound = 0;
  if (row.vocab > kMaxGathered && count <= kThreads) {
    scratch.words[threadIdx.x] = own_best;
    SortBestFirst<kThreads>(scratch, kThreads);
    bound = scratch.words[count - 1];
  }
  const auto key_of = [&](int id) { return row.Key(id); };
  const auto gather = [&] {
    return Gather<kThreads>(scratch, row.vocab, key_of,
                            [&](SampleKey key) { return key >= bound; });
  };
  int gathered = gather();
  if (gathered > kMaxGathered) {  // `bound` is not the best key then, and KeyOfRank has a barrier
    bound = KeyOfRank<kThreads>(scratch, row, count, bound);
    gathered = gather();
  }
  SortBestFirst<kThreads>(scratch, gathered);
}

// Sums the weights of each chunk of ids into scratch.chunk_sums and returns the sum of these: in
// the order of softmax_weights.cc, sixteen lanes a chunk. The first barrier comes after these sums
// are written: what read them before was this function, which ends with one.
template <int kThreads, class WeightOf>
__device__ double SumInIdOrder(SampleScratch& scratch, int vocab, const WeightOf& weight_of) {
  constexpr int kLanes = 16;
  const int chunks = (vocab + kSampleChunk - 1) / kSampleChunk;
  const int half_warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int rounds = (chunks + kThreads / kLanes - 1) / (kThreads / kLanes);
  for (int round = 0; round < rounds; ++round) {
    const int chunk = round * (kThreads / kLanes) + half_warp;
    const int begin = min(chunk * kSampleChunk, vocab), end = min(begin + kSampleChunk, vocab);
    const int whole_end = begin + (end - begin) / kLanes * kLanes;
    double sum = 0;
    for (int id = begin + lane; id < whole_end; id += kLanes) sum += weight_of(id);
    for (int id = whole_end; id < end && lane == 0; ++id) sum += weight_of(id);
    double of_chunk = 0;
    for (int i = 0; i < kLanes; ++i) of_chunk += __shfl_sync(gpu::kFullWarp, sum, i, kLanes);
    if (lane == 0 && chunk < chunks) scratch.chunk_sums[chunk] = of_chunk;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) total += scratch.chunk_sums[chunk];
    scratch.value = total;
  }
  __syncthreads();
  return scratch.value;
}

// The id at which the running sum of weights first exceeds `left`, after SumInIdOrder of the same
// weights; thread 0 gets it.
template <int kThreads, class WeightOf>
__device__ int FindInIdOrder(SampleScratch& scratch, int vocab, double left,
                             const WeightOf& weight_of) {
  if (threadIdx.x == 0) {
    const int chunks = (vocab + kSampleChunk - 1) / kSampleChunk;
    scratch.chunk = 0;
    scratch.inside = false;  // stays so if rounding leaves a rest: then the last id it is
    for (int chunk = 0; chunk < chunks && !scratch.inside; ++chunk) {
      if (scratch.chunk_sums[chunk] == 0) continue;
      scratch.chunk = chunk;
      scratch.inside = left < scratch.chunk_sums[chunk];
      if (!scratch.inside) left -= scratch.chunk_sums[chunk];
    }
  }
  __syncthreads();
  const int begin = scratch.chunk * kSampleChunk;
  for (int i = threadIdx.x; i < kSampleChunk; i += kThreads) {
    scratch.weights[i] = begin + i < vocab ? weight_of(begin + i) : 0.0f;
  }
  __syncthreads();
  int found = 0;
  bool is_found = false;
  for (int i = 0; i < kSampleChunk && threadIdx.x == 0 && !is_found; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(scratch.weights + i);
    const float weights[] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (weights[j] == 0 || is_found) continue;
      found = begin + i + j;
      is_found = scratch.inside && left < weights[j];
      left -= weights[j];
    }
  }
  return found;
}

}  // namespace baton::engine::cuda
