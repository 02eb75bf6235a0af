#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/load/bench_config.h"

namespace baton::bench {

// One request to send. Either text or token ids.
struct WorkItem {
  std::string text;
  std::vector<std::int32_t> tokens;
  int max_tokens = 0;
  absl::Duration arrival;  // since the start; meaningful in the open loop only
};

struct Workload {
  std::vector<WorkItem> items;
  bool open_loop = false;  // send at `arrival`, else as soon as a place is free
};

// Makes the requests that `config` describes; the same seed gives the same requests.
//   kInvalidArgument  a dataset without its file, or a malformed line (names file and line)
//   kNotFound         the file cannot be read
absl::StatusOr<Workload> MakeWorkload(const BenchConfig& config);

// A request of a trace: lengths in tokens before scaling. `hash_ids` name the prompt's blocks of
// kTraceBlock tokens; equal ids stand for equal content. Empty when the trace has none.
struct TraceEntry {
  absl::Duration arrival;  // since the trace's first request
  int input_length = 0;
  int output_length = 0;
  std::vector<std::int64_t> hash_ids;
};
inline constexpr int kTraceBlock = 512;

// Reads an Azure LLM inference trace (TIMESTAMP,ContextTokens,GeneratedTokens; CSV) or a Mooncake
// trace (timestamp in ms, input_length, output_length, hash_ids; JSON lines), at most `limit` rows.
absl::StatusOr<std::vector<TraceEntry>> ReadTrace(const std::string& path, int limit);

}  // namespace baton::bench
