#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace baton::engine {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

bool IsInside(std::int32_t token, std::span<const float> logits) {
  return token >= 0 && static_cast<std::size_t>(token) < logits.size();
}

bool HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

}  // namespace

SampledToken Sampler::Sample(const SamplingParams& params, std::span<const std::int32_t> prompt,
                             std::span<const std::int32_t> output, std::span<float> logits) {
  Sanitize(logits);
  SampledToken result;
  double normalizer = 0.0;
  if (params.logprobs) {
    normalizer = FillTop(logits, params.top_logprobs, result);
    sanitized_.assign(logits.begin(), logits.end());  // the chosen token's raw logit is read below
  }

  if (HasPenalties(params)) ApplyPenalties(params, prompt, output, logits);
  for (const auto& [token, bias] : params.logit_bias) {
    if (!IsInside(token, logits)) continue;
    logits[token] += bias;
    Sanitize(logits.subspan(token, 1));
  }
  if (output.size() < static_cast<std::size_t>(std::max(params.min_tokens, 0))) {
    for (const std::int32_t token : params.stop_token_ids) {
      if (IsInside(token, logits)) logits[token] = kNegativeInfinity;
    }
  }

  const std::int32_t best = ArgMax(logits);
  if (params.temperature <= 0.0f || params.top_k == 1 || std::isinf(logits[best])) {
    result.token = best;
  } else {
    const double uniform = CounterUniform(params.seed, output.size());
    if (params.top_k > 0 || params.top_p < 1.0f || params.min_p > 0.0f) {
      result.token = DrawFiltered(params, uniform, logits[best], logits);
    } else {
      weights_.Compute(logits, logits[best], params.temperature);
      result.token = weights_.Find(uniform);
    }
  }
  if (params.logprobs) {
    result.logprob = static_cast<float>(sanitized_[result.token] - normalizer);
  }
  return result;
}

SampledToken Sampler::Score(std::int32_t token, int num_top, std::span<const float> logits) {
  sanitized_.assign(logits.begin(), logits.end());
  Sanitize(sanitized_);
  SampledToken result;
  result.token = token;
  const double normalizer = FillTop(sanitized_, num_top, result);
  result.logprob = static_cast<float>(sanitized_[token] - normalizer);
  return result;
}

void Sampler::ApplyPenalties(const SamplingParams& params, std::span<const std::int32_t> prompt,
                             std::span<const std::int32_t> output, std::span<float> logits) {
  counts_.resize(logits.size(), 0);
  for (const std::int32_t token : output) {
    if (IsInside(token, logits)) ++counts_[token];
  }
  // Subtracting comes after scaling, as in vLLM; each distinct token is treated once.
  const auto penalize = [&](std::int32_t token, std::int32_t count) {
    float& logit = logits[token];
    logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.frequency_penalty * static_cast<float>(count);
    if (count > 0) logit -= params.presence_penalty;
    Sanitize({&logit, 1});
  };
  constexpr std::int32_t kDone = -1;
  for (const std::span<const std::int32_t> tokens : {prompt, output}) {
    for (const std::int32_t token : tokens) {
      if (!IsInside(token, logits) || counts_[token] == kDone) continue;
      penalize(token, counts_[token]);
      counts_[token] = kDone;
    }
  }
  for (const std::span<const std::int32_t> tokens : {prompt, output}) {
    for (const std::int32_t token : tokens) {
      if (IsInside(token, logits)) counts_[token] = 0;
    }
  }
}

double Sampler::FillTop(std::span<const float> logits, int num_top, SampledToken& result) {
  const float best = logits[ArgMax(logits)];
  if (std::isinf(best)) return 0.0;  // all -inf: so is every log-probability
  weights_.Compute(logits, best, /*temperature=*/1.0f);
  const double normalizer = best + std::log(weights_.total());
  for (const std::int32_t token : top_.Select(logits, num_top)) {
    result.top.push_back({token, static_cast<float>(logits[token] - normalizer)});
  }
  return normalizer;
}

std::int32_t Sampler::DrawFiltered(const SamplingParams& params, double uniform, float best,
                                   std::span<const float> logits) {
  candidates_.clear();
  if (params.top_k > 0) {
    KeepTopK(params, best, logits);
  } else if (params.top_p < 1.0f) {
    KeepTopP(params, best, logits);
  } else {
    KeepAll(params, best, logits);
  }
  // The best token's weight is 1, so this is a share of it, and what min_p <= 1 leaves is not
  // empty.
  const float least = std::min(params.min_p, 1.0f);
  std::erase_if(candidates_,
                [&](const Candidate& c) { return c.weight == 0.0f || c.weight < least; });
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double left = uniform * total;
  for (const Candidate& candidate : candidates_) {
    left -= candidate.weight;
    if (left < 0.0) return candidate.token;
  }
  return candidates_.back().token;
}

void Sampler::KeepTopK(const SamplingParams& params, float best, std::span<const float> logits) {
  const std::span<const std::int32_t> tokens = top_.Select(logits, params.top_k);
  gathered_.clear();
  for (const std::int32_t token : tokens) gathered_.push_back(logits[token]);
  weights_.Compute(gathered_, best, params.temperature);
  const double needed = params.top_p * weights_.total();
  double reached = 0.0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    candidates_.push_back({tokens[i], weights_.weights()[i]});
    reached += weights_.weights()[i];
    if (params.top_p < 1.0f && reached >= needed) return;
  }
}

void Sampler::KeepTopP(const SamplingParams& params, float best, std::span<const float> logits) {
  weights_.Compute(logits, best, params.temperature);
  const std::span<const float> weights = weights_.weights();
  const double needed = params.top_p * weights_.total();
  // The nucleus is usually small: it costs little to look for it among a few.
  constexpr int kFirstLook = 256;
  double reached = 0.0;
  for (const std::int32_t token : top_.Select(logits, kFirstLook)) {
    candidates_.push_back({token, weights[token]});
    reached += weights[token];
    if (reached >= needed) return;
  }
  candidates_.clear();
  for (const std::int32_t token : nucleus_.Select(weights, needed)) {
    candidates_.push_back({token, weights[token]});
  }
}

void Sampler::KeepAll(const SamplingParams& params, float best, std::span<const float> logits) {
  weights_.Compute(logits, best, params.temperature);
  const std::span<const float> weights = weights_.weights();
  const float least = std::min(params.min_p, 1.0f);
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] >= least) candidates_.push_back({static_cast<std::int32_t>(id), weights[id]});
  }
}

FinishReason CheckFinish(const SamplingParams& params, int prompt_tokens,
                         std::span<const std::int32_t> output, int max_context) {
  if (output.empty()) return FinishReason::kNone;
  const int num_output = static_cast<int>(output.size());
  const auto& stops = params.stop_token_ids;
  if (num_output > params.min_tokens &&
      std::find(stops.begin(), stops.end(), output.back()) != stops.end()) {
    return FinishReason::kStop;
  }
  if (num_output >= params.max_tokens || prompt_tokens + num_output >= max_context) {
    return FinishReason::kLength;
  }
  return FinishReason::kNone;
}

}  // namespace baton::engine
