#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/golden_data.h"
#include "tests/support/golden_engine.h"

namespace baton::testing {

// How far an engine's own greedy outputs follow the golden ones.
struct GreedyScore {
  int num_prompts = 0;
  // Prompts whose first N tokens, or whole output where it is shorter, are the golden ones.
  int agree_16 = 0, agree_32 = 0, agree_64 = 0;
  // Prompts that part at or before the last token a float32 engine must match (every token before
  // the first whose margin is 0.02 or less), with place and tokens: empty for a right f32 engine.
  std::vector<std::string> broken_f32_demands;
};
// `stop_token` ends an output.
absl::StatusOr<GreedyScore> ScoreGreedy(GoldenEngine& engine,
                                        const std::vector<GoldenPrompt>& prompts,
                                        std::int32_t stop_token);

// Fed the golden outputs: at how many steps the engine's best token is the golden one.
struct ForcedScore {
  int num_steps = 0;
  int num_agree = 0;
  double highest_parting_margin = 0;  // the golden margin of the surest step it missed
  double agreement() const { return static_cast<double>(num_agree) / num_steps; }
};
absl::StatusOr<ForcedScore> ScoreForced(GoldenEngine& engine,
                                        const std::vector<GoldenPrompt>& prompts);

// Absolute differences of log-probabilities from golden ones.
struct LogprobErrors {
  int count = 0;
  double median = 0, mean = 0, p95 = 0, max = 0;
};
// Over all top_ids of logits.jsonl, the golden outputs as context.
absl::StatusOr<LogprobErrors> ScoreLogits(GoldenEngine& engine, const GoldenSet& set);

// Over prompt_logprobs.jsonl: errors, and the perplexity of the engine and of the golden values.
struct PerplexityScore {
  LogprobErrors errors;
  double perplexity = 0;
  double golden_perplexity = 0;
};
absl::StatusOr<PerplexityScore> ScorePromptLogprobs(GoldenEngine& engine, const GoldenSet& set);

std::string ToString(const GreedyScore& score);
std::string ToString(const ForcedScore& score);
std::string ToString(const LogprobErrors& errors);
std::string ToString(const PerplexityScore& score);

}  // namespace baton::testing
