#include <string>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/model_locator.h"
#include "cli/process_config.h"
#include "cli/process_settings.h"
#include "cli/service_main.h"
#include "common/log.h"
#include "router/router.h"

namespace baton::cli {

int RunRouter(const std::vector<std::string>& args) {
  RouterProcessConfig config;
  std::string dump;
  if (const auto code = LoadOrExplain("router", args, config, &dump)) return *code;
  PrepareServiceProcess();
  ConfigureLog(config.log.log_level, config.log.log_format, "router");
  if (config.router.model.empty()) {
    const auto model = FindDefaultModel();
    if (!model.ok()) {
      log::Error("cannot start", {{"error", std::string(model.status().message())}});
      return 1;
    }
    config.router.model = *model;
  }
  log::Info("starting", {{"settings", dump}});
  const auto router = router::Router::Start(config.router);
  if (!router.ok()) {
    log::Error("cannot start", {{"error", std::string(router.status().message())}});
    return 1;
  }
  Service service;
  // A router can take its workers' calls at once; whether requests can be placed is /ready's to
  // say.
  service.ready = [] { return true; };
  service.describe = [&router] {
    return std::map<std::string, std::string>{
        {"http_port", absl::StrCat((*router)->http_port())},
        {"grpc_port", absl::StrCat((*router)->grpc_port())},
        {"session_port", absl::StrCat((*router)->session_port())}};
  };
  service.drain = [&router](absl::Time deadline) { return (*router)->Drain(deadline); };
  service.drain_timeout = config.drain_timeout;
  return RunUntilSignal(service);
}

}  // namespace baton::cli
