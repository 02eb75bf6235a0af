#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>

#include "bench/load/load_runner.h"
#include "bench/load/report.h"
#include "bench/load/workload.h"
#include "cli/command.h"
#include "cli/config/loader.h"

namespace baton::cli {
namespace {

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "baton bench: %s\n", std::string(status.message()).c_str());
  return code;
}

// "[=====>    ] 12/32" on standard error, redrawn in place.
class ProgressBar {
 public:
  ProgressBar(bool enabled, int total) : enabled_(enabled && isatty(2) != 0), total_(total) {}
  ~ProgressBar() {
    if (enabled_) std::fprintf(stderr, "\n");
  }
  void Show(int done) {
    if (!enabled_) return;
    std::lock_guard lock(mutex_);
    shown_ = std::max(shown_, done);
    const int filled = kWidth * shown_ / total_;
    std::fprintf(stderr, "\r[%s%s] %d/%d", std::string(static_cast<size_t>(filled), '=').c_str(),
                 std::string(static_cast<size_t>(kWidth - filled), ' ').c_str(), shown_, total_);
  }

 private:
  static constexpr int kWidth = 40;
  const bool enabled_;
  const int total_;
  std::mutex mutex_;
  int shown_ = 0;
};

absl::Status CheckCombination(const bench::BenchConfig& config) {
  if (config.endpoint == "chat" && config.dataset != "file") {
    return absl::InvalidArgumentError(
        "endpoint=chat needs text: use --dataset file --prompts-file FILE");
  }
  return absl::OkStatus();
}

}  // namespace

int RunBench(const std::vector<std::string>& args) {
  bench::BenchConfig config;
  auto settings = CollectSettings(config);
  const auto loaded = LoadSettings(settings, args);
  if (!loaded.ok()) return Fail(loaded.status(), 2);
  if (loaded->help) {
    std::printf("%s", HelpText("usage: baton bench [--SETTING VALUE ...]", settings).c_str());
    return 0;
  }
  if (absl::Status status = CheckCombination(config); !status.ok()) return Fail(status, 2);
  auto workload = bench::MakeWorkload(config);
  if (!workload.ok()) return Fail(workload.status(), 2);

  bench::OpenAiClient client(config);
  std::string model = config.model;
  if (model.empty()) {
    auto first = client.FirstModel();
    if (!first.ok()) return Fail(first.status(), 1);
    model = *std::move(first);
  }
  for (int i = 0; i < config.num_warmups; ++i) {
    const auto result =
        client.Run(workload->items[static_cast<size_t>(i) % workload->items.size()], model);
    if (!result.ok()) {
      return Fail(absl::UnavailableError("warm-up request failed: " + result.error + " " +
                                         result.error_detail),
                  1);
    }
  }
  std::vector<bench::RequestResult> results;
  {
    ProgressBar bar(config.progress, static_cast<int>(workload->items.size()));
    results = bench::RunLoad(config, *workload, model, [&bar](int done) { bar.Show(done); });
  }
  const bench::Report report = bench::MakeReport(config, results);
  const std::string json = bench::FormatJson(config, model, report);
  if (config.output_json == "-") {
    std::printf("%s", json.c_str());
  } else {
    std::printf("%s", bench::FormatTable(config, report).c_str());
    if (!config.output_json.empty() && !(std::ofstream(config.output_json) << json)) {
      return Fail(absl::UnavailableError("cannot write " + config.output_json), 1);
    }
  }
  if (report.completed == 0) return 1;
  if (config.gate_goodput > 0 && report.good_share < config.gate_goodput) {
    std::fprintf(stderr,
                 "baton bench: SLO gate failed: %.1f%% of the requests were good, %.1f%% wanted\n",
                 100 * report.good_share, 100 * config.gate_goodput);
    return 1;
  }
  return 0;
}

}  // namespace baton::cli
