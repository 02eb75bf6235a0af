#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::testing {

// One line of greedy.jsonl: a prompt and what the float32 model goes on with.
struct GoldenPrompt {
  std::string id;
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> output_ids;
  std::vector<double> margin;  // of each output id: top-1 logit minus top-2 logit
};

// The best tokens at one step of a prompt's golden output.
struct GoldenStep {
  int step = 0;  // index into output_ids of the token predicted
  std::vector<std::int32_t> top_ids;
  std::vector<double> top_logprobs;
};
struct GoldenLogits {
  std::string id;
  std::vector<GoldenStep> steps;
};

// logprobs[i] is that of prompt_ids[i] given the ids before it; the first is not defined.
struct GoldenPromptLogprobs {
  std::string id;
  std::vector<std::int32_t> prompt_ids;
  std::vector<double> logprobs;
};

// The reference outputs of one model: a folder in the format of tests/golden/README.md.
struct GoldenSet {
  std::vector<GoldenPrompt> greedy;
  std::vector<GoldenLogits> logits;
  std::vector<GoldenPromptLogprobs> prompt_logprobs;
  // The prompt of `id`, or nullptr.
  const GoldenPrompt* Find(const std::string& id) const;
};
absl::StatusOr<GoldenSet> LoadGoldenSet(const std::string& folder);

}  // namespace baton::testing
