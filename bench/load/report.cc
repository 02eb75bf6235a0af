#include "bench/load/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_format.h"

namespace baton::bench {
namespace {

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

nlohmann::ordered_json ToJson(const Quantiles& q) {
  return {{"mean", q.mean}, {"p50", q.p50}, {"p95", q.p95}, {"p99", q.p99}, {"max", q.max}};
}

std::string Row(const char* name, const Quantiles& q) {
  return absl::StrFormat("%-22s %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, q.mean, q.p50, q.p95,
                         q.p99, q.max);
}

}  // namespace

Quantiles Summarize(std::vector<double> sample) {
  Quantiles result;
  if (sample.empty()) return result;
  std::sort(sample.begin(), sample.end());
  const auto at = [&](double quantile) {
    const double rank = quantile * static_cast<double>(sample.size() - 1);
    const size_t low = static_cast<size_t>(std::floor(rank));
    const size_t high = std::min(low + 1, sample.size() - 1);
    return sample[low] + (sample[high] - sample[low]) * (rank - static_cast<double>(low));
  };
  result.mean =
      std::accumulate(sample.begin(), sample.end(), 0.0) / static_cast<double>(sample.size());
  result.p50 = at(0.50);
  result.p95 = at(0.95);
  result.p99 = at(0.99);
  result.max = sample.back();
  return result;
}

Report MakeReport(const BenchConfig& config, const std::vector<RequestResult>& results) {
  Report report;
  std::vector<double> ttft, tpot, itl, end_to_end;
  absl::Time first = absl::InfiniteFuture(), last = absl::InfinitePast();
  for (const RequestResult& result : results) {
    first = std::min(first, result.sent);
    last = std::max(last, result.ended);
    if (!result.ok()) {
      ++report.failed;
      ++report.errors[result.error];
      if (report.first_error.empty()) report.first_error = result.error_detail;
      continue;
    }
    ++report.completed;
    report.prompt_tokens += result.prompt_tokens;
    report.output_tokens += result.output_tokens;
    ttft.push_back(Milliseconds(result.ttft()));
    end_to_end.push_back(Milliseconds(result.end_to_end()));
    if (result.output_tokens > 1) tpot.push_back(Milliseconds(result.tpot()));
    for (const absl::Duration gap : result.gaps) itl.push_back(Milliseconds(gap));
    if (result.ttft() <= config.slo_ttft && result.tpot() <= config.slo_tpot) ++report.good;
  }
  report.ttft = Summarize(std::move(ttft));
  report.tpot = Summarize(std::move(tpot));
  report.itl = Summarize(std::move(itl));
  report.end_to_end = Summarize(std::move(end_to_end));
  if (!results.empty()) {
    report.seconds = std::max(1e-9, absl::ToDoubleSeconds(last - first));
    report.requests_per_second = report.completed / report.seconds;
    report.output_tokens_per_second = static_cast<double>(report.output_tokens) / report.seconds;
    report.goodput = report.good / report.seconds;
    report.good_share = static_cast<double>(report.good) / static_cast<double>(results.size());
  }
  return report;
}

std::string FormatTable(const BenchConfig& config, const Report& report) {
  std::string text = absl::StrFormat(
      "requests               %d completed, %d failed in %.2f s\n"
      "tokens                 %d prompt, %d output\n"
      "throughput             %.2f requests/s, %.1f output tokens/s\n",
      report.completed, report.failed, report.seconds, report.prompt_tokens, report.output_tokens,
      report.requests_per_second, report.output_tokens_per_second);
  text += absl::StrFormat(
      "goodput                %.2f requests/s, %.1f%% good (TTFT <= %s, TPOT <= %s)\n\n",
      report.goodput, 100 * report.good_share, absl::FormatDuration(config.slo_ttft),
      absl::FormatDuration(config.slo_tpot));
  text += absl::StrFormat("%-22s %10s %10s %10s %10s %10s\n", "milliseconds", "mean", "p50", "p95",
                          "p99", "max");
  text += Row("TTFT", report.ttft);
  text += Row("TPOT", report.tpot);
  text += Row("inter-token latency", report.itl);
  text += Row("end to end", report.end_to_end);
  for (const auto& [kind, count] : report.errors) {
    text += absl::StrFormat("error: %s: %d\n", kind, count);
  }
  if (!report.first_error.empty()) {
    text += "first error: " + report.first_error.substr(0, 500) + "\n";
  }
  return text;
}

std::string FormatJson(const BenchConfig& config, const std::string& model, const Report& report) {
  nlohmann::ordered_json json = {{"url", config.url},
                                 {"model", model},
                                 {"endpoint", config.endpoint},
                                 {"dataset", config.dataset},
                                 {"num_prompts", config.num_prompts},
                                 {"concurrency", config.concurrency},
                                 {"request_rate", config.request_rate},
                                 {"input_len", config.input_len},
                                 {"output_len", config.output_len},
                                 {"completed", report.completed},
                                 {"failed", report.failed},
                                 {"errors", report.errors},
                                 {"seconds", report.seconds},
                                 {"prompt_tokens", report.prompt_tokens},
                                 {"output_tokens", report.output_tokens},
                                 {"requests_per_second", report.requests_per_second},
                                 {"output_tokens_per_second", report.output_tokens_per_second},
                                 {"goodput_requests_per_second", report.goodput},
                                 {"good_share", report.good_share},
                                 {"slo_ttft_ms", Milliseconds(config.slo_ttft)},
                                 {"slo_tpot_ms", Milliseconds(config.slo_tpot)},
                                 {"ttft_ms", ToJson(report.ttft)},
                                 {"tpot_ms", ToJson(report.tpot)},
                                 {"itl_ms", ToJson(report.itl)},
                                 {"end_to_end_ms", ToJson(report.end_to_end)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace baton::bench
