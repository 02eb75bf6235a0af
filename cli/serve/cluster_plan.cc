#include "cli/serve/cluster_plan.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/config/loader.h"
#include "cli/process_config.h"

namespace baton::cli {
namespace {

// Nicer than the decode worker's 0 by enough that the kernel gives decode three quarters of a
// contended core: running streams keep their pace, and prompts still come to an end.
constexpr int kPrefillNice = 5;

struct Inherited {
  std::vector<std::string> args;
  std::map<std::string, std::string> secrets;  // for the environment
};

// The settings given to serve that `Config` also declares, except `own`.
template <class Config>
Inherited Inherit(const std::map<std::string, std::string>& given,
                  const std::set<std::string>& own) {
  Config config;
  Inherited inherited;
  for (const Setting& setting : CollectSettings(config)) {
    const auto found = given.find(setting.name);
    if (found == given.end() || own.contains(setting.name)) continue;
    if (setting.spec.secret) {
      inherited.secrets[EnvironmentName(setting.name)] = found->second;
    } else {
      inherited.args.push_back(absl::StrCat("--", setting.name, "=", found->second));
    }
  }
  return inherited;
}

// A restarted process takes the ports that its former self had, even where serve asked for any.
std::string PortFlag(const ReadyValues& known, const std::string& process, const char* flag,
                     const char* key, int wanted) {
  const auto found = known.find(absl::StrCat(process, ".", key));
  return absl::StrCat("--", flag, "=", found == known.end() ? absl::StrCat(wanted) : found->second);
}

ChildSpec RouterSpec(const ServeConfig& config, const std::map<std::string, std::string>& given) {
  ChildSpec spec;
  spec.name = "router";
  Inherited inherited = Inherit<RouterProcessConfig>(
      given, {"model", "port", "grpc-port", "session-port", "session-host"});
  spec.environment = std::move(inherited.secrets);
  const bool any_session_port = !given.contains("session-port");
  spec.args = [config, args = std::move(inherited.args),
               any_session_port](const ReadyValues& known) {
    std::vector<std::string> all = {"router"};
    all.insert(all.end(), args.begin(), args.end());
    all.push_back("--model=" + config.router.model);
    all.push_back("--session-host=127.0.0.1");  // its workers live here, nobody else may register
    all.push_back(PortFlag(known, "router", "port", "http_port", config.router.port));
    all.push_back(PortFlag(known, "router", "grpc-port", "grpc_port", config.router.grpc_port));
    all.push_back(PortFlag(known, "router", "session-port", "session_port",
                           any_session_port ? 0 : config.router.session_port));
    return all;
  };
  return spec;
}

ChildSpec WorkerSpec(const ServeConfig& config, const std::map<std::string, std::string>& given,
                     const char* command, int index, int ranks, int threads, int nice) {
  ChildSpec spec;
  spec.name = absl::StrCat(command, "-", index);
  Inherited inherited = Inherit<worker::WorkerConfig>(
      given, {"model", "routers", "worker-id", "host", "advertise-host", "kv-port", "admin-port",
              "tensor-parallel-size"});
  spec.environment = std::move(inherited.secrets);
  std::vector<std::string> args = {command};
  args.insert(args.end(), inherited.args.begin(), inherited.args.end());
  args.push_back("--model=" + config.worker.model);
  args.push_back("--worker-id=" + spec.name);
  args.push_back("--host=127.0.0.1");
  if (config.role == "both") args.push_back("--role=both");
  args.push_back(absl::StrCat("--tensor-parallel-size=", ranks));
  if (!given.contains("threads")) args.push_back(absl::StrCat("--threads=", threads));
  if (!given.contains("nice")) args.push_back(absl::StrCat("--nice=", nice));
  spec.args = [args = std::move(args), name = spec.name](const ReadyValues& known) {
    std::vector<std::string> all = args;
    all.push_back(PortFlag(known, name, "admin-port", "admin_port", 0));
    all.push_back("--routers=127.0.0.1:" + known.at("router.session_port"));
    return all;
  };
  spec.note = ranks == 1 ? absl::StrFormat("%d threads, nice %d", threads, nice)
                         : absl::StrFormat("%d ranks, %d threads, nice %d", ranks, threads, nice);
  return spec;
}

}  // namespace

std::vector<std::vector<ChildSpec>> PlanCluster(const ServeConfig& config,
                                                const std::map<std::string, std::string>& given,
                                                int num_cores) {
  std::vector<ChildSpec> workers;
  const auto ranks = [&config](int own) {
    return own > 0 ? own : config.worker.tensor_parallel_size;
  };
  if (config.role == "split") {
    const int threads = std::max(1, num_cores / config.prefill);
    for (int i = 0; i < config.prefill; ++i) {
      workers.push_back(WorkerSpec(config, given, "prefill", i,
                                   ranks(config.prefill_tensor_parallel_size), threads,
                                   kPrefillNice));
    }
  }
  const int threads = std::max(1, num_cores / config.decode);
  for (int i = 0; i < config.decode; ++i) {
    workers.push_back(WorkerSpec(config, given, "decode", i,
                                 ranks(config.decode_tensor_parallel_size), threads, 0));
  }
  return {{RouterSpec(config, given)}, std::move(workers)};
}

}  // namespace baton::cli
