#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace baton {

// How to choose output tokens for one sequence; OpenAI's and vLLM's meanings and names. Already
// validated: the router checks ranges once, at the door.
struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy
  std::int32_t top_k = 0;    // 0 = off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;                         // over prompt and output
  float presence_penalty = 0.0f;                           // over output
  float frequency_penalty = 0.0f;                          // over output
  std::vector<std::pair<std::int32_t, float>> logit_bias;  // token id, added to its logit
  std::uint64_t seed = 0;        // always set; the router draws one if absent
  std::int32_t max_tokens = 16;  // output tokens at most, >= 1
  std::int32_t min_tokens = 0;   // until then no stop token may be sampled
  bool ignore_eos = false;
  std::vector<std::int32_t>
      stop_token_ids;             // the model's eos ids (unless ignore_eos) and the request's own
  bool logprobs = false;          // report the chosen token's log-probability
  std::int32_t top_logprobs = 0;  // and of so many best tokens
  bool prompt_logprobs = false;
  std::int32_t num_prompt_logprobs = 0;
  bool operator==(const SamplingParams&) const = default;
};

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0.0f;
  bool operator==(const TokenLogprob&) const = default;
};

// One output token with what was asked for about it.
struct SampledToken {
  std::int32_t token = 0;
  float logprob = 0.0f;           // set when logprobs was asked
  std::vector<TokenLogprob> top;  // best first, top_logprobs of them
  bool operator==(const SampledToken&) const = default;
};

enum class FinishReason : std::uint8_t { kNone, kStop, kLength };

}  // namespace baton
