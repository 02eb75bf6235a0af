#pragma once
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/load/bench_config.h"
#include "bench/load/openai_client.h"

namespace baton::bench {

// Of a sample in milliseconds; zeros for an empty one.
struct Quantiles {
  double mean = 0, p50 = 0, p95 = 0, p99 = 0, max = 0;
};
// Percentiles by linear interpolation between closest ranks (numpy's default).
Quantiles Summarize(std::vector<double> sample);

struct Report {
  int completed = 0;
  int failed = 0;
  std::map<std::string, int> errors;  // by kind
  std::string first_error;            // detail of one, to act on
  double seconds = 0;                 // from the first request sent to the last answer's end
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  Quantiles ttft, tpot, itl, end_to_end;  // ms, over completed requests
  double requests_per_second = 0;
  double output_tokens_per_second = 0;
  int good = 0;           // completed within both limits
  double goodput = 0;     // good requests per second
  double good_share = 0;  // good / all requests sent
};

Report MakeReport(const BenchConfig& config, const std::vector<RequestResult>& results);
// A table for people.
std::string FormatTable(const BenchConfig& config, const Report& report);
// The same, and the settings, for programs.
std::string FormatJson(const BenchConfig& config, const std::string& model, const Report& report);

}  // namespace baton::bench
