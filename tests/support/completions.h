#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/golden_data.h"
#include "tests/support/local_cluster.h"

namespace baton::testing {

// The prompts of a golden set (tests/golden/*/greedy.jsonl), from BATON_GOLDEN_DIR or the copy in
// the repository.
std::vector<GoldenPrompt> ReadGoldenPrompts(const std::string& set);

// How to sample: temperature 0 when greedy, else a fixed seed with temperature, top_p and a
// penalty.
nlohmann::json GreedyOptions(int max_tokens);
nlohmann::json SeededOptions(int max_tokens, int seed);

// Token ids that the cluster answers to `prompt` under `options`.
absl::StatusOr<std::vector<std::int32_t>> Complete(const LocalCluster& cluster,
                                                   const std::vector<std::int32_t>& prompt,
                                                   const nlohmann::json& options);
// The same for several prompts, all sent at once.
std::vector<absl::StatusOr<std::vector<std::int32_t>>> CompleteAll(
    const LocalCluster& cluster, const std::vector<GoldenPrompt>& prompts,
    const std::vector<nlohmann::json>& options);

// free + cached + reserved + active == total on every one of `workers`, and nothing but free and
// cached blocks is left. Waits for the last releases to arrive.
bool BooksAreBalancedAndIdle(const LocalCluster& cluster, const std::vector<std::string>& workers);

}  // namespace baton::testing
