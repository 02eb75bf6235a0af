#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton::engine::cuda {

// How to choose the token of one row of logits: SamplingParams, in the form that a step copies to
// the device. Lists are pieces [begin, begin + count) of one array of token ids; ids outside the
// vocabulary are ignored. log-probabilities and logit_bias are the host sampler's business.
struct SampleRow {
  float temperature;  // 0 = greedy
  float top_p;
  float min_p;
  float repetition_penalty;               // 1: none; over prompt and output
  float presence_penalty;                 // 0: none; over output
  float frequency_penalty;                // 0: none; over output
  std::int32_t top_k;                     // 0: off
  std::int32_t skip;                      // not 0: a filling row; its token is set to -1
  std::int32_t prompt_begin, num_prompt;  // may be empty where no penalty is set; likewise output
  std::int32_t output_begin, num_output;
  // Tokens that may not be sampled: the stop tokens while the output is shorter than min_tokens.
  std::int32_t masked_begin, num_masked;
  std::uint64_t seed;
  std::uint64_t position;  // index of the token to choose in the output: the length so far
};

// Bytes of the workspace for so many rows: counts of tokens, as large as the logits.
std::size_t SampleWorkspaceBytes(int num_rows, int vocab);

// Chooses a token per row with the meaning of engine::Sampler, whose contract applies: penalties,
// mask, temperature, top_k, top_p, min_p, one draw of CounterUniform(seed, position); ties to the
// lowest id, NaN as -inf. Every row by itself; no float is summed by atomics: the same bits in
// every run. The token is the very one of engine::Sampler where there is no filter, with top_k up
// to 1,024, and with top_p where 256 tokens reach it: exponentials, sums and their order are the
// same. With min_p alone, a larger nucleus or a larger top_k, sums in double run in another order;
// where a draw or a cut falls within their rounding (about 1e-16 of the total) of a boundary, the
// token may be the one beside it: less than one draw in 10^9.
//   vocab: at most 524,288; logits: [num_rows, vocab] float, overwritten where there are penalties
//   or masks; rows: [num_rows]; lists: the array that rows point into, may be null where all are
//   empty; workspace: SampleWorkspaceBytes, all zero before the first call and again after each;
//   tokens: [num_rows]
// Reads the logits twice when sampling with top_k <= 1,024 or a small nucleus, twice without
// filters, once when greedy; a large nucleus or top_k takes further passes.
cudaError_t SampleTokens(float* logits, int num_rows, int vocab, const SampleRow* rows,
                         const std::int32_t* lists, void* workspace, std::int32_t* tokens,
                         cudaStream_t stream);

}  // namespace baton::engine::cuda
