#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace baton::engine {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// Gives every logit a place in an order: NaN lowest, +inf the largest finite value (so that
// differences of logits are never inf - inf).
float Sanitized(float logit) {
  if (std::isnan(logit)) return kNegativeInfinity;
  return std::min(logit, std::numeric_limits<float>::max());
}

// Index of the largest value, the lowest of equals.
std::int32_t ArgMax(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t id = 1; id < logits.size(); ++id) {
    if (logits[id] > logits[best]) best = id;
  }
  return static_cast<std::int32_t>(best);
}

double LogSumExp(std::span<const float> logits) {
  // Terms below e^-60 of the largest change no bit of a double's sum over any real vocabulary.
  constexpr double kNegligible = -60.0;
  const double best = logits[ArgMax(logits)];
  if (std::isinf(best)) return 0.0;  // all -inf: every log-probability is -inf
  double sum = 0.0;
  for (const float logit : logits) {
    const double distance = logit - best;
    if (distance > kNegligible) sum += std::exp(distance);
  }
  return best + std::log(sum);
}

bool IsInside(std::int32_t token, std::span<const float> logits) {
  return token >= 0 && static_cast<std::size_t>(token) < logits.size();
}

bool HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

// Fills `result.top` and returns the log-sum-exp, which turns any logit into a log-probability.
double FillTop(std::span<const float> logits, int num_top, TopCandidates& selector,
               SampledToken& result) {
  const double normalizer = LogSumExp(logits);
  for (const std::int32_t token : selector.Select(logits, num_top)) {
    result.top.push_back({token, static_cast<float>(logits[token] - normalizer)});
  }
  return normalizer;
}

}  // namespace

SampledToken Sampler::Sample(const SamplingParams& params, std::span<const std::int32_t> prompt,
                             std::span<const std::int32_t> output, std::span<float> logits) {
  for (float& logit : logits) logit = Sanitized(logit);
  SampledToken result;
  double normalizer = 0.0;
  if (params.logprobs) {
    normalizer = FillTop(logits, params.top_logprobs, top_, result);
    sanitized_.assign(logits.begin(), logits.end());  // the chosen token's raw logit is read below
  }

  if (HasPenalties(params)) ApplyPenalties(params, prompt, output, logits);
  for (const auto& [token, bias] : params.logit_bias) {
    if (IsInside(token, logits)) logits[token] = Sanitized(logits[token] + bias);
  }
  if (output.size() < static_cast<std::size_t>(std::max(params.min_tokens, 0))) {
    for (const std::int32_t token : params.stop_token_ids) {
      if (IsInside(token, logits)) logits[token] = kNegativeInfinity;
    }
  }

  const bool filtered = params.top_k > 0 || params.top_p < 1.0f || params.min_p > 0.0f;
  if (params.temperature <= 0.0f || params.top_k == 1) {
    result.token = ArgMax(logits);
  } else {
    const double uniform = CounterUniform(params.seed, output.size());
    result.token = filtered ? DrawFiltered(params, uniform, logits)
                            : DrawFromAll(params.temperature, uniform, logits);
  }
  if (params.logprobs) {
    result.logprob = static_cast<float>(sanitized_[result.token] - normalizer);
  }
  return result;
}

SampledToken Sampler::Score(std::int32_t token, int num_top, std::span<const float> logits) {
  sanitized_.resize(logits.size());
  std::transform(logits.begin(), logits.end(), sanitized_.begin(), Sanitized);
  SampledToken result;
  result.token = token;
  const double normalizer = FillTop(sanitized_, num_top, top_, result);
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
    logit = Sanitized(logit);
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

std::int32_t Sampler::DrawFromAll(float temperature, double uniform,
                                  std::span<const float> logits) {
  const std::int32_t best = ArgMax(logits);
  if (std::isinf(logits[best])) return best;
  weights_.resize(logits.size());
  double total = 0.0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    weights_[id] = std::exp((logits[id] - logits[best]) / temperature);
    total += weights_[id];
  }
  double left = uniform * total;
  std::int32_t last = best;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (weights_[id] == 0.0f) continue;
    last = static_cast<std::int32_t>(id);
    left -= weights_[id];
    if (left < 0.0) break;
  }
  return last;
}

std::int32_t Sampler::DrawFiltered(const SamplingParams& params, double uniform,
                                   std::span<const float> logits) {
  const std::int32_t best = ArgMax(logits);
  if (std::isinf(logits[best])) return best;
  candidates_.clear();
  if (params.top_k > 0 || params.top_p < 1.0f) {
    KeepTop(params, logits[best], logits);
    // Best first, so min_p cuts the tail.
    const auto below = [&](const Candidate& c) { return c.weight < params.min_p; };
    candidates_.erase(std::find_if(candidates_.begin(), candidates_.end(), below),
                      candidates_.end());
  } else {
    KeepAboveMinP(params, logits[best], logits);
  }
  if (candidates_.empty()) return best;  // min_p above 1
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double left = uniform * total;
  for (const Candidate& candidate : candidates_) {
    left -= candidate.weight;
    if (left < 0.0) return candidate.token;
  }
  return candidates_.back().token;
}

void Sampler::KeepTop(const SamplingParams& params, float best, std::span<const float> logits) {
  const auto weight = [&](float logit) {
    return std::exp(static_cast<double>(logit - best) / params.temperature);
  };
  const int vocab = static_cast<int>(logits.size());
  const int limit = params.top_k > 0 ? std::min(params.top_k, vocab) : vocab;
  double total = 0.0;  // of what top_p takes its share
  if (params.top_k <= 0) {
    for (const float logit : logits) {
      total += std::exp((logit - best) / params.temperature);  // float: summed, never drawn
    }
  }
  // Without top_k the nucleus is usually small: look for it among few, then among more.
  constexpr int kFirstLook = 256;
  for (int look = params.top_k > 0 ? limit : std::min(kFirstLook, limit);;
       look = std::min(limit, look * 8)) {
    candidates_.clear();
    for (const std::int32_t token : top_.Select(logits, look)) {
      const double w = weight(logits[token]);
      if (w > 0.0) candidates_.push_back({token, w});
    }
    if (params.top_p >= 1.0f) return;
    if (params.top_k > 0) {
      for (const Candidate& candidate : candidates_) total += candidate.weight;
    }
    double cumulative = 0.0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      cumulative += candidates_[i].weight;
      if (cumulative >= params.top_p * total) {
        candidates_.resize(i + 1);
        return;
      }
    }
    if (look == limit) return;
  }
}

void Sampler::KeepAboveMinP(const SamplingParams& params, float best,
                            std::span<const float> logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double weight = std::exp(static_cast<double>(logits[id] - best) / params.temperature);
    if (weight >= params.min_p) candidates_.push_back({static_cast<std::int32_t>(id), weight});
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
