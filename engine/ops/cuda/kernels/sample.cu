// Sampling, a block per row: 128 threads where the whole vocabulary fits into shared memory, 1,024
// otherwise. The logits are read once to find the best; then
//   greedy                  nothing more
//   no filter, or min_p     once for the sums of chunks; the draw reads one chunk
//   top_k <= 1,024          once to gather what beats the k-th best of the threads' best, which are
//                           little more than k; sorted and drawn from in shared memory
//   top_p                   the sums, the 256 best as above; if these do not reach it, masses of
//                           buckets 3 % wide in exact integers, one bucket sorted, the sums again
//   what fits nowhere       bisection of keys, a pass per bit: many equal logits, a huge top_k
// Sequential sums run in one thread, in the order of the host sampler.
#include "engine/ops/cuda/kernels/sample.h"

#include "engine/ops/cuda/kernels/sample_block.h"

namespace baton::engine::cuda {
namespace {

constexpr int kFewThreads = 128, kManyThreads = 1024;
constexpr int kFirstLook = 256;  // best candidates among which top_p's cut is looked for first

__device__ bool HasPenalties(const SampleRow& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

__device__ float Penalized(const SampleRow& params, float logit, int count) {
  logit = SanitizedLogit(logit);
  logit = logit > 0.0f ? __fdiv_rn(logit, params.repetition_penalty)
                       : __fmul_rn(logit, params.repetition_penalty);
  logit = __fsub_rn(logit, __fmul_rn(params.frequency_penalty, static_cast<float>(count)));
  if (count > 0) logit = __fsub_rn(logit, params.presence_penalty);
  return SanitizedLogit(logit);
}

// Calls `visit` for each token of lists[begin, begin + count) that is in the vocabulary.
template <int kThreads, class Visit>
__device__ void ForEachToken(const std::int32_t* lists, int begin, int count, int vocab,
                             const Visit& visit) {
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int token = lists[begin + i];
    if (token >= 0 && token < vocab) visit(token);
  }
}

// `counts`: [vocab], all zero before and after. Each token of prompt and output is treated once, by
// whichever thread comes first: what it does is the same. A barrier follows the last write of a
// logit.
template <int kThreads>
__device__ void ApplyPenalties(const SampleRow& params, const std::int32_t* lists, int vocab,
                               int* counts, float* logits) {
  constexpr int kDone = -1;
  const auto prompt = [&](const auto& visit) {
    ForEachToken<kThreads>(lists, params.prompt_begin, params.num_prompt, vocab, visit);
  };
  const auto output = [&](const auto& visit) {
    ForEachToken<kThreads>(lists, params.output_begin, params.num_output, vocab, visit);
  };
  const auto treat = [&](int token) {
    const int count = atomicExch(counts + token, kDone);
    if (count != kDone) logits[token] = Penalized(params, logits[token], count);
  };
  const auto reset = [&](int token) { atomicExch(counts + token, 0); };
  output([&](int token) { atomicAdd(counts + token, 1); });
  __syncthreads();
  output(treat);
  prompt(treat);
  __syncthreads();
  output(reset);
  prompt(reset);
}

// Draws from the `count` best, whose keys lie sorted in scratch.words: cuts where `needed` is
// reached, drops what min_p drops. Writes the token, or -1 where `must_reach` and the candidates do
// not reach `needed`, into scratch.token.
__device__ void DrawBestFirst(SampleScratch& scratch, const SampleRow& params, int count,
                              double needed, bool must_reach, double uniform) {
  if (threadIdx.x != 0) return;
  scratch.token = -1;
  if (params.top_p < 1.0f) {
    double reached = 0;
    int kept = 0;
    while (kept < count && (kept == 0 || reached < needed)) reached += scratch.weights[kept++];
    if (must_reach && reached < needed) return;
    count = kept;
  }
  const float least = fminf(params.min_p, 1.0f);
  const auto is_kept = [&](float weight) { return weight != 0.0f && weight >= least; };
  double total = 0;
  for (int i = 0; i < count; ++i) total += is_kept(scratch.weights[i]) ? scratch.weights[i] : 0.0f;
  double left = __dmul_rn(uniform, total);
  for (int i = 0; i < count; ++i) {
    const float weight = scratch.weights[i];
    if (!is_kept(weight)) continue;
    scratch.token = IdOf(scratch.words[i]);
    left -= weight;
    if (left < 0) return;
  }
}

// scratch.weights[i] = weight of the i-th best.
template <int kThreads>
__device__ void WeighSorted(SampleScratch& scratch, const SampleLogits& row, int count) {
  for (int i = threadIdx.x; i < count; i += kThreads) {
    scratch.weights[i] = row.Weight(IdOf(scratch.words[i]));
  }
  __syncthreads();
}

// Weights of a bucket share their exponent: sums of their mantissas are exact, in any order.
constexpr int kDroppedBits = 18;

__device__ double MassOf(int bucket, SampleKey mantissas) {
  const unsigned exponent = static_cast<unsigned>(bucket) >> (23 - kDroppedBits);
  return static_cast<double>(mantissas) * static_cast<double>(__uint_as_float(exponent << 23)) *
         0x1.0p-23;
}

// scratch.words is no longer read when it is called.
template <int kThreads>
__device__ void FillMasses(SampleScratch& scratch, const SampleLogits& row) {
  for (int bucket = threadIdx.x; bucket < kMassBuckets; bucket += kThreads) {
    scratch.words[bucket] = 0;
  }
  __syncthreads();
  for (int id = threadIdx.x; id < row.vocab; id += kThreads) {
    const float weight = row.Weight(id);
    if (weight == 0.0f) continue;
    const unsigned bits = __float_as_uint(weight);
    atomicAdd(&scratch.words[bits >> kDroppedBits], (bits & 0x7FFFFFu) | 0x800000u);
  }
  __syncthreads();
}

// Finds the bucket in which the running mass from the best bucket on reaches `needed`; 0 where
// rounding leaves a rest. Leaves it in scratch.chunk, and the mass before it in scratch.value. The
// first warp looks at 32 buckets at once, since most are empty.
__device__ void FindCutBucket(SampleScratch& scratch, double needed) {
  if (threadIdx.x < 32) {
    double reached = 0;
    int cut = 0;
    for (int top = kMassBuckets - 1; top > 0 && cut == 0; top -= 32) {
      const int own = top - static_cast<int>(threadIdx.x);
      const double mass = own > 0 ? MassOf(own, scratch.words[own]) : 0.0;
      unsigned filled = __ballot_sync(gpu::kFullWarp, mass > 0);
      while (filled != 0 && cut == 0) {
        const int lane = __ffs(static_cast<int>(filled)) - 1;
        filled &= filled - 1;
        const double next = reached + __shfl_sync(gpu::kFullWarp, mass, lane);
        if (next >= needed) {
          cut = top - lane;
        } else {
          reached = next;
        }
      }
    }
    if (threadIdx.x == 0) {
      scratch.chunk = cut;
      scratch.value = reached;
    }
  }
  __syncthreads();
}

// The nucleus of more than kFirstLook tokens: the smallest set of best weights (of equals, the
// lowest ids) that sums to `needed`. Returns the WeightKey of its last.
template <int kThreads>
__device__ SampleKey NucleusCut(SampleScratch& scratch, const SampleLogits& row, double needed) {
  FillMasses<kThreads>(scratch, row);
  FindCutBucket(scratch, needed);
  const int cut = scratch.chunk;
  const double before = scratch.value;
  if (cut == 0) return 0;
  const auto is_in_cut = [&](SampleKey key) {
    return static_cast<int>(key >> (32 + kDroppedBits)) == cut;
  };
  const auto key_of = [&](int id) { return WeightKey(row.Weight(id), id); };
  const int gathered = Gather<kThreads>(scratch, row.vocab, key_of, is_in_cut);
  if (gathered > kMaxGathered) {
    const SampleKey low = SampleKey{static_cast<unsigned>(cut)} << (32 + kDroppedBits);
    const SampleKey high = low + (SampleKey{1} << (32 + kDroppedBits)) - 1;
    return GreatestThatHolds(low, high, [&](SampleKey bound) {
      double sum = 0;  // exact, of one exponent
      for (int id = threadIdx.x; id < row.vocab; id += kThreads) {
        const SampleKey key = key_of(id);
        if (is_in_cut(key) && key >= bound) sum += row.Weight(id);
      }
      return before + SampleBlockSum<kThreads>(scratch, sum) >= needed;
    });
  }
  SortBestFirst<kThreads>(scratch, gathered);
  if (threadIdx.x == 0) {
    double reached = before;
    for (int i = 0; i < gathered && (i == 0 || reached < needed); ++i) {
      scratch.key = scratch.words[i];
      reached += __uint_as_float(static_cast<unsigned>(scratch.key >> 32));
    }
  }
  __syncthreads();
  return scratch.key;
}

// top_k of more than kMaxSorted: cuts and the draw are found by bisection. Sums run in the order of
// threads here. The token is thread 0's.
template <int kThreads>
__device__ int DrawFromManyBest(SampleScratch& scratch, const SampleRow& params,
                                const SampleLogits& row, int count, double uniform) {
  const SampleKey top = row.best_key;
  SampleKey cut = count < row.vocab ? KeyOfRank<kThreads>(scratch, row, count, 0) : 0;
  float least = 0.0f;
  const auto sum_from = [&](SampleKey bound) {
    double sum = 0;
    for (int id = threadIdx.x; id < row.vocab; id += kThreads) {
      if (row.Key(id) < bound) continue;
      const float weight = row.Weight(id);
      sum += weight >= least ? weight : 0.0f;
    }
    return SampleBlockSum<kThreads>(scratch, sum);
  };
  if (params.top_p < 1.0f) {
    const double needed = __dmul_rn(params.top_p, sum_from(cut));
    cut = GreatestThatHolds(cut, top, [&](SampleKey key) { return sum_from(key) >= needed; });
  }
  least = fminf(params.min_p, 1.0f);
  const double left = __dmul_rn(uniform, sum_from(cut));
  return IdOf(GreatestThatHolds(cut, top, [&](SampleKey key) { return sum_from(key) > left; }));
}

// Draws among the ids whose weights `weight_of` leaves above 0, in their order.
template <int kThreads, class WeightOf>
__device__ int DrawInIdOrder(SampleScratch& scratch, int vocab, double uniform,
                             const WeightOf& weight_of) {
  const double total = SumInIdOrder<kThreads>(scratch, vocab, weight_of);
  return FindInIdOrder<kThreads>(scratch, vocab, __dmul_rn(uniform, total), weight_of);
}

// top_p without top_k. The token is thread 0's.
template <int kThreads>
__device__ int DrawFromNucleus(SampleScratch& scratch, const SampleRow& params,
                               const SampleLogits& row, SampleKey own_best, double uniform) {
  const auto weight_of = [&](int id) { return row.Weight(id); };
  const double needed =
      __dmul_rn(params.top_p, SumInIdOrder<kThreads>(scratch, row.vocab, weight_of));
  const int looked_at = min(kFirstLook, row.vocab);
  SortTop<kThreads>(scratch, row, looked_at, own_best);
  WeighSorted<kThreads>(scratch, row, looked_at);
  DrawBestFirst(scratch, params, looked_at, needed, /*must_reach=*/true, uniform);
  __syncthreads();
  if (scratch.token >= 0) return scratch.token;
  const SampleKey cut = NucleusCut<kThreads>(scratch, row, needed);
  const float least = fminf(params.min_p, 1.0f);
  return DrawInIdOrder<kThreads>(scratch, row.vocab, uniform, [&](int id) {
    const float weight = row.Weight(id);
    return weight >= least && WeightKey(weight, id) >= cut ? weight : 0.0f;
  });
}

// The token is thread 0's.
template <int kThreads>
__device__ int Draw(SampleScratch& scratch, const SampleRow& params, const SampleLogits& row,
                    SampleKey own_best) {
  const double uniform = CounterUniformOf(params.seed, params.position);
  if (params.top_k > 0) {
    const int count = min(params.top_k, row.vocab);
    if (count > kMaxSorted) {
      return DrawFromManyBest<kThreads>(scratch, params, row, count, uniform);
    }
    SortTop<kThreads>(scratch, row, count, own_best);
    WeighSorted<kThreads>(scratch, row, count);
    const double total =
        SumInIdOrder<kThreads>(scratch, count, [&](int i) { return scratch.weights[i]; });
    DrawBestFirst(scratch, params, count, __dmul_rn(params.top_p, total), /*must_reach=*/false,
                  uniform);
    return threadIdx.x == 0 ? scratch.token : -1;
  }
  if (params.top_p < 1.0f) {
    return DrawFromNucleus<kThreads>(scratch, params, row, own_best, uniform);
  }
  const float least = fminf(params.min_p, 1.0f);
  return DrawInIdOrder<kThreads>(scratch, row.vocab, uniform, [&](int id) {
    const float weight = row.Weight(id);
    return weight >= least ? weight : 0.0f;
  });
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads, 1)
    SampleBlockPerRow(float* __restrict__ all_logits, int vocab, const SampleRow* __restrict__ rows,
                      const std::int32_t* __restrict__ lists, int* __restrict__ all_counts,
                      std::int32_t* __restrict__ tokens) {
  SampleScratch& scratch = gpu::SharedMemory<SampleScratch>();
  const SampleRow params = rows[blockIdx.x];
  if (params.skip != 0) {
    if (threadIdx.x == 0) tokens[blockIdx.x] = -1;
    return;
  }
  const std::size_t offset = static_cast<std::size_t>(blockIdx.x) * vocab;
  float* logits = all_logits + offset;
  if (HasPenalties(params)) {
    ApplyPenalties<kThreads>(params, lists, vocab, all_counts + offset, logits);
  }
  ForEachToken<kThreads>(lists, params.masked_begin, params.num_masked, vocab,
                         [&](int token) { atomicExch(logits + token, -INFINITY); });
  __syncthreads();

  SampleKey own_best = 0;
  for (int id = threadIdx.x; id < vocab; id += kThreads) {
    const SampleKey key = LogitKey(SanitizedLogit(logits[id]), id);
    if (key > own_best) own_best = key;
  }
  const SampleKey best = SampleBlockMax<kThreads>(scratch, own_best);
  int token = IdOf(best);
  const SampleLogits row{logits, vocab, best, SanitizedLogit(logits[token]), params.temperature};
  if (params.temperature > 0.0f && params.top_k != 1 && row.best > -INFINITY) {
    token = Draw<kThreads>(scratch, params, row, own_best);
  }
  if (threadIdx.x == 0) tokens[blockIdx.x] = token;
}

}  // namespace

std::size_t SampleWorkspaceBytes(int num_rows, int vocab) {
  return static_cast<std::size_t>(num_rows) * vocab * sizeof(int);
}

cudaError_t SampleTokens(float* logits, int num_rows, int vocab, const SampleRow* rows,
                         const std::int32_t* lists, void* workspace, std::int32_t* tokens,
                         cudaStream_t stream) {
  if (num_rows < 0 || vocab <= 0 || vocab > kSampleChunk * kMaxSampleChunks) {
    return cudaErrorInvalidValue;
  }
  if (num_rows == 0) return cudaSuccess;
  int* counts = static_cast<int*>(workspace);
  if (vocab <= kMaxGathered) {
    return gpu::Launch(SampleBlockPerRow<kFewThreads>,
                       {.grid = dim3(num_rows), .block = dim3(kFewThreads), .stream = stream},
                       logits, vocab, rows, lists, counts, tokens);
  }
  return gpu::Launch(SampleBlockPerRow<kManyThreads>,
                     {.grid = dim3(num_rows), .block = dim3(kManyThreads), .stream = stream},
                     logits, vocab, rows, lists, counts, tokens);
}

}  // namespace baton::engine::cuda
