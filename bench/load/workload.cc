#include "bench/load/workload.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace baton::bench {
namespace {

// Ids below are special and byte tokens in most vocabularies.
constexpr int kFirstRandomToken = 256;

std::vector<std::int32_t> RandomTokens(std::mt19937_64& random, int count, int vocab) {
  std::uniform_int_distribution<std::int32_t> draw(kFirstRandomToken,
                                                   kFirstRandomToken + vocab - 1);
  std::vector<std::int32_t> tokens(static_cast<size_t>(count));
  for (auto& token : tokens) token = draw(random);
  return tokens;
}

int Scale(int length, double factor) {
  return std::max(1, static_cast<int>(std::lround(length * factor)));
}

// The prompt of a trace entry. Each block's tokens depend on its hash id alone, so that prefixes
// shared in the trace are shared here.
std::vector<std::int32_t> TraceTokens(const TraceEntry& entry, const BenchConfig& config,
                                      std::mt19937_64& random) {
  const int length = Scale(entry.input_length, config.length_scale);
  if (entry.hash_ids.empty()) return RandomTokens(random, length, config.random_vocab);
  const int block = Scale(kTraceBlock, config.length_scale);
  std::vector<std::int32_t> tokens;
  for (size_t i = 0; static_cast<int>(tokens.size()) < length; ++i) {
    const std::int64_t id =
        i < entry.hash_ids.size() ? entry.hash_ids[i] : static_cast<std::int64_t>(random() >> 1);
    std::mt19937_64 of_block(static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15u + 1);
    for (const auto token : RandomTokens(of_block, block, config.random_vocab)) {
      tokens.push_back(token);
    }
  }
  tokens.resize(static_cast<size_t>(length));
  return tokens;
}

absl::Status FillFromFile(const BenchConfig& config, Workload& workload) {
  std::ifstream file(config.prompts_file);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("prompts file not readable: \"", config.prompts_file,
                                            "\"; give --prompts-file"));
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(config.prompts_file, ": has no prompts"));
  }
  for (int i = 0; i < config.num_prompts; ++i) {
    WorkItem item;
    item.text = lines[static_cast<size_t>(i) % lines.size()];
    item.max_tokens = config.output_len;
    workload.items.push_back(std::move(item));
  }
  return absl::OkStatus();
}

absl::Status FillFromTrace(const BenchConfig& config, std::mt19937_64& random, Workload& workload) {
  BATON_ASSIGN_OR_RETURN(const auto entries, ReadTrace(config.trace_file, config.num_prompts));
  for (const TraceEntry& entry : entries) {
    WorkItem item;
    item.tokens = TraceTokens(entry, config, random);
    item.max_tokens = Scale(entry.output_length, config.length_scale);
    item.arrival = entry.arrival * config.time_scale;
    workload.items.push_back(std::move(item));
  }
  workload.open_loop = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Workload> MakeWorkload(const BenchConfig& config) {
  Workload workload;
  std::mt19937_64 random(static_cast<std::uint64_t>(config.seed));
  if (config.dataset == "file") {
    BATON_RETURN_IF_ERROR(FillFromFile(config, workload));
  } else if (config.dataset == "trace") {
    BATON_RETURN_IF_ERROR(FillFromTrace(config, random, workload));
  } else {
    for (int i = 0; i < config.num_prompts; ++i) {
      WorkItem item;
      item.tokens = RandomTokens(random, config.input_len, config.random_vocab);
      item.max_tokens = config.output_len;
      workload.items.push_back(std::move(item));
    }
  }
  if (config.request_rate > 0) {
    std::exponential_distribution<double> gap(config.request_rate);
    absl::Duration arrival;
    for (WorkItem& item : workload.items) {
      item.arrival = arrival;
      arrival += absl::Seconds(gap(random));
    }
    workload.open_loop = true;
  }
  return workload;
}

}  // namespace baton::bench
