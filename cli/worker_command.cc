#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/model_locator.h"
#include "cli/process_config.h"
#include "cli/process_settings.h"
#include "cli/service_main.h"
#include "common/log.h"
#include "decode_worker/decode_worker.h"
#include "prefill_worker/prefill_worker.h"
#include "worker/worker_service.h"

namespace baton::cli {
namespace {

using WorkerOr = absl::StatusOr<std::unique_ptr<worker::Worker>>;

// Settings of the process `baton decode`.
struct DecodeProcessConfig {
  std::string role = "decode";
  worker::WorkerConfig worker;
  template <class Visitor>
  void VisitFields(Visitor&& field) {
    field(role, "role", {.choices = {"decode", "both"}},
          "decode takes prompts from prefill workers; both computes them itself.");
    worker.VisitFields(field);
  }
};

template <class Start>
int RunWorker(const char* kind, worker::WorkerConfig& config, const std::string& dump,
              const Start& start) {
  PrepareServiceProcess();
  ConfigureLog(config.log_level, config.log_format,
               config.worker_id.empty() ? kind : config.worker_id);
  if (config.model.empty()) {
    const auto model = FindDefaultModel();
    if (!model.ok()) {
      log::Error("cannot start", {{"error", std::string(model.status().message())}});
      return 1;
    }
    config.model = *model;
  }
  log::Info("starting", {{"settings", dump}});
  const WorkerOr worker = start();
  if (!worker.ok()) {
    log::Error("cannot start", {{"error", std::string(worker.status().message())}});
    return 1;
  }
  Service service;
  service.ready = [&worker] { return (*worker)->ready(); };
  service.failure = [&worker] { return (*worker)->failure(); };
  service.describe = [&worker] {
    return std::map<std::string, std::string>{
        {"admin_port", absl::StrCat((*worker)->admin_port())}};
  };
  service.drain = [&worker](absl::Time deadline) { return (*worker)->Drain(deadline); };
  service.drain_timeout = config.drain_timeout;
  return RunUntilSignal(service);
}

}  // namespace

int RunPrefill(const std::vector<std::string>& args) {
  worker::WorkerConfig config;
  std::string dump;
  if (const auto code = LoadOrExplain("prefill", args, config, &dump)) return *code;
  return RunWorker("prefill", config, dump, [&config]() -> WorkerOr {
    return prefill_worker::PrefillWorker::Start(config);
  });
}

int RunDecode(const std::vector<std::string>& args) {
  DecodeProcessConfig config;
  std::string dump;
  if (const auto code = LoadOrExplain("decode", args, config, &dump)) return *code;
  const auto role =
      config.role == "both" ? session::WorkerRole::kBoth : session::WorkerRole::kDecode;
  return RunWorker("decode", config.worker, dump, [&config, role]() -> WorkerOr {
    return decode_worker::DecodeWorker::Start(config.worker, role);
  });
}

}  // namespace baton::cli
