#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/load/bench_config.h"
#include "bench/load/workload.h"

namespace baton::bench {

// What one request experienced, on this process's clock.
struct RequestResult {
  absl::Time sent;
  absl::Time first_token = absl::InfinitePast();
  absl::Time last_token = absl::InfinitePast();
  absl::Time ended;
  std::vector<absl::Duration> gaps;  // between successive events that carried tokens
  int events = 0;                    // that carried tokens
  int prompt_tokens = 0;             // from the server's usage; 0 if it sends none
  int output_tokens = 0;             // from usage, else the number of events
  std::string error;                 // empty on success; a short kind: "http 503", "timeout"
  std::string error_detail;

  bool ok() const { return error.empty(); }
  absl::Duration ttft() const { return first_token - sent; }
  absl::Duration end_to_end() const { return last_token - sent; }
  // Time per output token after the first; zero for a single token.
  absl::Duration tpot() const;
};

// A blocking streaming client over one kept-alive connection. Not thread-safe: one per thread.
class OpenAiClient {
 public:
  explicit OpenAiClient(const BenchConfig& config);
  ~OpenAiClient();

  // Sends one request with stream=true and reads its events to the end.
  RequestResult Run(const WorkItem& item, const std::string& model);
  // The first model that /v1/models lists.
  absl::StatusOr<std::string> FirstModel();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace baton::bench
