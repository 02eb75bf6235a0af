#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/serve/child_process.h"
#include "nlohmann/json_fwd.hpp"
#include "tests/support/http_client.h"
#include "tests/support/wait_for.h"

namespace baton::testing {

// `models/tiny/target`.
std::string TinyModelPath();

// A real cluster: `baton serve` with every port picked by the system, as child processes that end
// with the test. Not thread-safe; several clients may talk to its ports at once.
class LocalCluster {
 public:
  // Starts `baton serve --model MODEL flags...` and waits until every process is ready.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(
      const std::string& model, const std::vector<std::string>& flags = {},
      const std::map<std::string, std::string>& environment = {});
  // SIGTERM, then SIGKILL if it lingers.
  ~LocalCluster();

  // Starts one more worker, which registers with the cluster's router on its own: `command` is
  // "prefill" or "decode", `flags` its own. Known as `id` from then on, like the others. Dies with
  // the cluster.
  absl::Status Join(const std::string& command, const std::string& id,
                    const std::vector<std::string>& flags);

  int http_port() const { return Port("router", "http_port"); }
  int grpc_port() const { return Port("router", "grpc_port"); }
  // What `process` ("router", "prefill-0") reported under `key` when it became ready.
  int Port(const std::string& process, const std::string& key) const;
  pid_t supervisor_pid() const { return serve_.pid(); }
  // The process's present pid: it changes when the supervisor restarts it. 0 if it is not running.
  pid_t Pid(const std::string& process) const;

  // One request on a connection of its own.
  absl::StatusOr<HttpResult> Post(std::string_view path, const nlohmann::json& body) const;
  absl::StatusOr<HttpResult> Get(std::string_view path) const;
  // GET from a worker's admin port.
  absl::StatusOr<HttpResult> GetFrom(const std::string& process, std::string_view path) const;
  // The value of a metric line such as `baton_kv_blocks{state="free"}` of a process; NaN if absent.
  double Metric(const std::string& process, const std::string& series) const;
  // Sends SIGTERM to the supervisor and waits; its exit code, or -1 when it had to be killed.
  int Stop(absl::Duration patience = absl::Seconds(40));

 private:
  LocalCluster(std::string model, cli::ChildProcess serve,
               std::map<std::string, std::string> ready);
  const std::string model_;
  cli::ChildProcess serve_;
  std::vector<cli::ChildProcess> joined_;
  std::map<std::string, std::string> ready_;
  bool running_ = true;
};

}  // namespace baton::testing
