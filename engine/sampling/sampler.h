#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "common/sampling_params.h"

namespace baton::engine {

// Uniform in [0, 1) for output position `position` of a sequence seeded with `seed`: Philox4x32-10
// (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") keyed by the seed with the
// position as counter. A pure function, so a request moved to another worker goes on with the very
// number it would have used.
double CounterUniform(std::uint64_t seed, std::uint64_t position);

// Chooses output token number `output.size()` of a sequence from its logits: penalties and bias,
// then temperature, top_k, top_p, min_p, then one draw of CounterUniform(seed, output.size()).
// Log-probabilities reported are of the raw logits, before any of these (OpenAI's meaning).
// Deterministic; ties go to the lowest token id. Scratch memory is kept between calls.
// Not thread-safe.
class Sampler {
 public:
  // `logits`: [vocab], overwritten. `prompt` and `output`: the sequence's tokens so far.
  SampledToken Sample(const SamplingParams& params, std::span<const std::int32_t> prompt,
                      std::span<const std::int32_t> output, std::span<float> logits);

  // Log-probability of `token` and the `num_top` best under `logits` (unchanged), for prompt
  // log-probabilities.
  SampledToken Score(std::int32_t token, int num_top, std::span<const float> logits);

 private:
  std::vector<std::int32_t> candidates_;
  std::vector<float> probabilities_;
};

// Why a sequence that just produced `output` ends, or kNone: a stop token after min_tokens (kStop),
// or max_tokens reached or `prompt_tokens + output` at `max_context` (kLength).
FinishReason CheckFinish(const SamplingParams& params, int prompt_tokens,
                         std::span<const std::int32_t> output, int max_context);

}  // namespace baton::engine
