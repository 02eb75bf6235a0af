#include "tests/support/golden_data.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace baton::testing {
namespace {

using Json = nlohmann::json;

// Every line of a JSON lines file through `convert`, whose exceptions name the line.
template <class T, class Convert>
absl::StatusOr<std::vector<T>> ReadLines(const std::string& path, const Convert& convert) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("golden file missing: ", path));
  std::vector<T> items;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    try {
      items.push_back(convert(Json::parse(line)));
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", error.what()));
    }
  }
  return items;
}

GoldenPrompt ToPrompt(const Json& json) {
  return {.id = json.at("id"),
          .prompt_ids = json.at("prompt_ids"),
          .output_ids = json.at("output_ids"),
          .margin = json.at("margin")};
}

GoldenLogits ToLogits(const Json& json) {
  GoldenLogits logits{.id = json.at("id"), .steps = {}};
  for (const Json& position : json.at("positions")) {
    logits.steps.push_back({.step = position.at("step"),
                            .top_ids = position.at("top_ids"),
                            .top_logprobs = position.at("top_logprobs")});
  }
  return logits;
}

GoldenPromptLogprobs ToPromptLogprobs(const Json& json) {
  GoldenPromptLogprobs result{
      .id = json.at("id"), .prompt_ids = json.at("prompt_ids"), .logprobs = {}};
  for (const Json& value : json.at("logprobs")) {
    result.logprobs.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                              : value.get<double>());
  }
  return result;
}

}  // namespace

const GoldenPrompt* GoldenSet::Find(const std::string& id) const {
  for (const GoldenPrompt& prompt : greedy) {
    if (prompt.id == id) return &prompt;
  }
  return nullptr;
}

absl::StatusOr<GoldenSet> LoadGoldenSet(const std::string& folder) {
  GoldenSet set;
  BATON_ASSIGN_OR_RETURN(set.greedy, ReadLines<GoldenPrompt>(folder + "/greedy.jsonl", ToPrompt));
  BATON_ASSIGN_OR_RETURN(set.logits, ReadLines<GoldenLogits>(folder + "/logits.jsonl", ToLogits));
  BATON_ASSIGN_OR_RETURN(
      set.prompt_logprobs,
      ReadLines<GoldenPromptLogprobs>(folder + "/prompt_logprobs.jsonl", ToPromptLogprobs));
  return set;
}

}  // namespace baton::testing
