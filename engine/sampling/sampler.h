#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "common/sampling_params.h"
#include "engine/sampling/nucleus_selector.h"
#include "engine/sampling/softmax_weights.h"
#include "engine/sampling/top_candidates.h"

namespace baton::engine {

// Uniform in [0, 1) for output position `position` of a sequence seeded with `seed`: Philox4x32-10
// (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") keyed by the seed with the
// position as counter. A pure function, so a request moved to another worker goes on with the very
// number it would have used.
double CounterUniform(std::uint64_t seed, std::uint64_t position);

// Chooses output token number `output.size()` of a sequence from its logits: penalties, then bias
// and the mask of stop tokens before min_tokens; then temperature, top_k, top_p (of what top_k
// left), min_p (against the best); then one draw of CounterUniform(seed, output.size()).
// Log-probabilities reported are of the raw logits, before any of these (OpenAI's meaning), summed
// in double. Deterministic, on any machine; ties go to the lowest token id. A NaN logit counts as
// -inf; when nothing is left, the lowest id is taken. Token ids outside the vocabulary are ignored.
// Cost: two passes over the vocabulary when greedy, one exponential per token when sampling without
// top_k, and a selection (never a full sort) with top_k or top_p.
// Scratch memory is kept between calls. Not thread-safe.
class Sampler {
 public:
  // `logits`: [vocab], vocab >= 1, overwritten. `prompt` and `output`: the sequence's tokens so
  // far.
  SampledToken Sample(const SamplingParams& params, std::span<const std::int32_t> prompt,
                      std::span<const std::int32_t> output, std::span<float> logits);

  // Log-probability of `token` and the `num_top` best under `logits` (unchanged), for prompt
  // log-probabilities. Requires a token inside the vocabulary.
  SampledToken Score(std::int32_t token, int num_top, std::span<const float> logits);

 private:
  // A token that may be drawn and its probability relative to the best one's.
  struct Candidate {
    std::int32_t token;
    float weight;
  };

  void ApplyPenalties(const SamplingParams& params, std::span<const std::int32_t> prompt,
                      std::span<const std::int32_t> output, std::span<float> logits);
  std::int32_t DrawFiltered(const SamplingParams& params, double uniform, float best,
                            std::span<const float> logits);
  // Each fills candidates_ with what the named filters leave.
  void KeepTopK(const SamplingParams& params, float best, std::span<const float> logits);
  void KeepTopP(const SamplingParams& params, float best, std::span<const float> logits);
  void KeepAll(const SamplingParams& params, float best, std::span<const float> logits);
  // Fills `result.top` and returns the log-sum-exp, which makes any logit a log-probability.
  double FillTop(std::span<const float> logits, int num_top, SampledToken& result);

  TopCandidates top_;
  SoftmaxWeights weights_;
  NucleusSelector nucleus_;
  std::vector<Candidate> candidates_;
  std::vector<float> gathered_;       // logits of the candidates of top_k
  std::vector<std::int32_t> counts_;  // [vocab], all zero between calls
  std::vector<float> sanitized_;      // [vocab]
};

// Why a sequence that just produced `output` ends, or kNone: a stop token after min_tokens (kStop),
// or max_tokens reached or `prompt_tokens + output` at `max_context` (kLength).
FinishReason CheckFinish(const SamplingParams& params, int prompt_tokens,
                         std::span<const std::int32_t> output, int max_context);

}  // namespace baton::engine
