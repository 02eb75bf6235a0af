#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/config/loader.h"
#include "cli/model_locator.h"
#include "cli/serve/cluster_plan.h"
#include "cli/serve/serve_config.h"
#include "cli/serve/supervisor.h"

namespace baton::cli {
namespace {

int NumCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

void Announce(const ReadyValues& known) {
  std::printf("%-10s ready: http://127.0.0.1:%s/v1 (gRPC 127.0.0.1:%s); Ctrl-C stops it\n",
              "cluster", known.at("router.http_port").c_str(),
              known.at("router.grpc_port").c_str());
  std::fflush(stdout);
  ReportReady(known);
}

}  // namespace

int RunServe(const std::vector<std::string>& args) {
  ServeConfig config;
  auto settings = CollectSettings(config);
  auto loaded = LoadSettings(settings, args);
  if (!loaded.ok()) {
    std::fprintf(stderr, "baton serve: %s\n", std::string(loaded.status().message()).c_str());
    return 2;
  }
  if (loaded->help) {
    std::printf("%s", HelpText("usage: baton serve [--SETTING VALUE ...]", settings).c_str());
    return 0;
  }
  if (config.router.model.empty()) {
    const auto model = FindDefaultModel();
    if (!model.ok()) {
      std::fprintf(stderr, "baton serve: %s\n", std::string(model.status().message()).c_str());
      return 1;
    }
    config.router.model = config.worker.model = *model;
  }
  std::printf("%-10s %s\n", "model", config.router.model.c_str());
  std::fflush(stdout);
  DieWithSupervisor();
  Supervisor::Options options;
  options.grace = config.worker.drain_timeout + absl::Seconds(5);
  options.on_ready = Announce;
  return Supervisor(std::move(options), PlanCluster(config, loaded->given, NumCores())).Run();
}

}  // namespace baton::cli
