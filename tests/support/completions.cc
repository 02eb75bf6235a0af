#include "tests/support/completions.h"

#include <cstdlib>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"

namespace baton::testing {

using nlohmann::json;

std::vector<GoldenPrompt> ReadGoldenPrompts(const std::string& set) {
  const char* const folder = std::getenv("BATON_GOLDEN_DIR");
  std::ifstream file(std::string(folder == nullptr ? BATON_SOURCE_DIR "/tests/golden" : folder) +
                     "/" + set + "/greedy.jsonl");
  std::vector<GoldenPrompt> prompts;
  for (std::string line; std::getline(file, line);) {
    const json row = json::parse(line);
    prompts.push_back({row.at("id"), row.at("prompt_ids").get<std::vector<std::int32_t>>(),
                       row.at("output_ids").get<std::vector<std::int32_t>>(),
                       row.at("margin").get<std::vector<double>>()});
  }
  return prompts;
}

json GreedyOptions(int max_tokens) { return {{"temperature", 0}, {"max_tokens", max_tokens}}; }

json SeededOptions(int max_tokens, int seed) {
  return {{"temperature", 0.9},        {"top_p", 0.95}, {"seed", seed},
          {"repetition_penalty", 1.1}, {"top_k", 50},   {"max_tokens", max_tokens}};
}

absl::StatusOr<std::vector<std::int32_t>> Complete(const LocalCluster& cluster,
                                                   const std::vector<std::int32_t>& prompt,
                                                   const json& options) {
  json body = options;
  body["prompt"] = prompt;
  body["return_token_ids"] = true;
  const auto result = cluster.Post("/v1/completions", body);
  if (!result.ok()) return result.status();
  const json answer = json::parse(result->body, nullptr, false);
  if (result->status != 200 || !answer.is_object()) {
    return absl::InternalError(absl::StrCat("status ", result->status, ": ", result->body));
  }
  return answer.at("choices").at(0).at("token_ids").get<std::vector<std::int32_t>>();
}

std::vector<absl::StatusOr<std::vector<std::int32_t>>> CompleteAll(
    const LocalCluster& cluster, const std::vector<GoldenPrompt>& prompts,
    const std::vector<json>& options) {
  std::vector<absl::StatusOr<std::vector<std::int32_t>>> outputs(
      prompts.size(), absl::UnknownError("not answered"));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back([&, i] {
      outputs[i] = Complete(cluster, prompts[i].prompt_ids, options[i % options.size()]);
    });
  }
  for (auto& thread : threads) thread.join();
  return outputs;
}

bool BooksAreBalancedAndIdle(const LocalCluster& cluster, const std::vector<std::string>& workers) {
  return WaitFor([&] {
    for (const std::string& worker : workers) {
      const auto blocks = [&](const char* state) {
        return cluster.Metric(worker, absl::StrCat("baton_kv_blocks{state=\"", state, "\"}"));
      };
      const double total = cluster.Metric(worker, "baton_kv_blocks_total_count");
      if (!(total > 0) || blocks("reserved") != 0 || blocks("active") != 0 ||
          blocks("free") + blocks("cached") != total) {
        return false;
      }
    }
    return true;
  });
}

}  // namespace baton::testing
