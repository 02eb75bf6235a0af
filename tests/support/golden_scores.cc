#include "tests/support/golden_scores.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "engine/sampling/sampler.h"

namespace baton::testing {
namespace {

constexpr double kSureMargin = 0.02;  // tests/golden/README.md, "Greedy"

// How many leading tokens an f32 engine must get right.
int NumDemanded(const GoldenPrompt& prompt) {
  const auto unsure = std::find_if(prompt.margin.begin(), prompt.margin.end(),
                                   [](double margin) { return margin <= kSureMargin; });
  return static_cast<int>(unsure - prompt.margin.begin());
}

int NumAgreeing(const std::vector<std::int32_t>& output, const std::vector<std::int32_t>& golden) {
  const std::size_t shorter = std::min(output.size(), golden.size());
  return static_cast<int>(std::mismatch(output.begin(),
                                        output.begin() + static_cast<std::ptrdiff_t>(shorter),
                                        golden.begin())
                              .first -
                          output.begin());
}

LogprobErrors Summarize(std::vector<double> errors) {
  LogprobErrors summary;
  summary.count = static_cast<int>(errors.size());
  if (errors.empty()) return summary;
  std::sort(errors.begin(), errors.end());
  for (const double error : errors) summary.mean += error / static_cast<double>(errors.size());
  summary.median = errors[errors.size() / 2];
  summary.p95 = errors[errors.size() * 95 / 100];
  summary.max = errors.back();
  return summary;
}

std::vector<std::int32_t> PromptAndOutput(const GoldenPrompt& prompt) {
  std::vector<std::int32_t> tokens = prompt.prompt_ids;
  tokens.insert(tokens.end(), prompt.output_ids.begin(), prompt.output_ids.end());
  return tokens;
}

}  // namespace

absl::StatusOr<GreedyScore> ScoreGreedy(GoldenEngine& engine,
                                        const std::vector<GoldenPrompt>& prompts,
                                        std::int32_t stop_token) {
  std::vector<GoldenEngine::GreedyRequest> requests;
  for (const GoldenPrompt& prompt : prompts) {
    requests.push_back({.prompt = prompt.prompt_ids,
                        .max_tokens = static_cast<int>(prompt.output_ids.size()),
                        .stop_token = stop_token});
  }
  BATON_ASSIGN_OR_RETURN(const auto outputs, engine.Greedy(requests));
  GreedyScore score;
  score.num_prompts = static_cast<int>(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const GoldenPrompt& prompt = prompts[i];
    const int length = static_cast<int>(prompt.output_ids.size());
    const int agreeing = NumAgreeing(outputs[i], prompt.output_ids);
    if (agreeing >= std::min(16, length)) ++score.agree_16;
    if (agreeing >= std::min(32, length)) ++score.agree_32;
    if (agreeing >= std::min(64, length)) ++score.agree_64;
    if (agreeing < NumDemanded(prompt)) {
      score.broken_f32_demands.push_back(absl::StrFormat(
          "%s parts at step %d (margin %g)", prompt.id, agreeing, prompt.margin[agreeing]));
    }
  }
  return score;
}

absl::StatusOr<ForcedScore> ScoreForced(GoldenEngine& engine,
                                        const std::vector<GoldenPrompt>& prompts) {
  ForcedScore score;
  for (const GoldenPrompt& prompt : prompts) {
    std::vector<std::int32_t> tokens = PromptAndOutput(prompt);
    tokens.pop_back();  // the last output token predicts nothing
    const int first = static_cast<int>(prompt.prompt_ids.size()) - 1;
    BATON_RETURN_IF_ERROR(
        engine.Forced(tokens, first, [&](int position, std::span<const float> logits) {
          const int step = position - first;
          const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
          ++score.num_steps;
          if (best == prompt.output_ids[step]) {
            ++score.num_agree;
          } else {
            score.highest_parting_margin =
                std::max(score.highest_parting_margin, prompt.margin[step]);
          }
        }));
  }
  return score;
}

absl::StatusOr<LogprobErrors> ScoreLogits(GoldenEngine& engine, const GoldenSet& set) {
  engine::Sampler sampler;
  std::vector<double> errors;
  for (const GoldenLogits& golden : set.logits) {
    const GoldenPrompt* prompt = set.Find(golden.id);
    if (prompt == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits.jsonl names a prompt that greedy.jsonl lacks: ", golden.id));
    }
    const int first = static_cast<int>(prompt->prompt_ids.size()) - 1;
    const auto compare = [&](int position, std::span<const float> logits) {
      for (const GoldenStep& step : golden.steps) {
        if (first + step.step != position) continue;
        for (std::size_t i = 0; i < step.top_ids.size(); ++i) {
          const double logprob = sampler.Score(step.top_ids[i], 0, logits).logprob;
          errors.push_back(std::abs(logprob - step.top_logprobs[i]));
        }
      }
    };
    std::vector<std::int32_t> tokens = PromptAndOutput(*prompt);
    tokens.pop_back();
    BATON_RETURN_IF_ERROR(engine.Forced(tokens, first, compare));
  }
  return Summarize(std::move(errors));
}

absl::StatusOr<PerplexityScore> ScorePromptLogprobs(GoldenEngine& engine, const GoldenSet& set) {
  engine::Sampler sampler;
  std::vector<double> errors;
  double sum = 0, golden_sum = 0;
  for (const GoldenPromptLogprobs& golden : set.prompt_logprobs) {
    BATON_RETURN_IF_ERROR(
        engine.Forced(golden.prompt_ids, 0, [&](int position, std::span<const float> logits) {
          const std::size_t next = position + 1;
          if (next == golden.prompt_ids.size()) return;
          const double logprob = sampler.Score(golden.prompt_ids[next], 0, logits).logprob;
          errors.push_back(std::abs(logprob - golden.logprobs[next]));
          sum += logprob;
          golden_sum += golden.logprobs[next];
        }));
  }
  PerplexityScore score;
  const double count = static_cast<double>(errors.size());
  score.perplexity = std::exp(-sum / count);
  score.golden_perplexity = std::exp(-golden_sum / count);
  score.errors = Summarize(std::move(errors));
  return score;
}

std::string ToString(const GreedyScore& score) {
  return absl::StrFormat("of %d prompts %d, %d, %d agree at 16, 32, 64 tokens; %d break a demand",
                         score.num_prompts, score.agree_16, score.agree_32, score.agree_64,
                         score.broken_f32_demands.size());
}

std::string ToString(const ForcedScore& score) {
  return absl::StrFormat("%d of %d forced steps agree (%.2f%%), surest miss at margin %g",
                         score.num_agree, score.num_steps, 100 * score.agreement(),
                         score.highest_parting_margin);
}

std::string ToString(const LogprobErrors& errors) {
  return absl::StrFormat("log-probability errors over %d: median %g, mean %g, p95 %g, max %g",
                         errors.count, errors.median, errors.mean, errors.p95, errors.max);
}

std::string ToString(const PerplexityScore& score) {
  return absl::StrFormat("perplexity %.4f, golden %.4f; %s", score.perplexity,
                         score.golden_perplexity, ToString(score.errors));
}

}  // namespace baton::testing
