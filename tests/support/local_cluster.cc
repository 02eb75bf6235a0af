#include "tests/support/local_cluster.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace baton::testing {
namespace {

std::string Environment(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

absl::StatusOr<HttpResult> OneRequest(int port, std::string_view method, std::string_view path,
                                      std::string_view body) {
  HttpClient client(port, absl::Seconds(120));
  if (!client.connected()) return absl::UnavailableError(absl::StrCat("no server on port ", port));
  return client.Do(method, path, body);
}

// Waits until the child has told its ready values; false when it died or takes too long.
bool AwaitReady(cli::ChildProcess& child, std::map<std::string, std::string>* ready) {
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  while (child.ready_fd() >= 0 && absl::Now() < deadline) {
    pollfd fd = {child.ready_fd(), POLLIN, 0};
    poll(&fd, 1, 100);
    if (fd.revents != 0 && child.ReadReady(*ready)) return true;
  }
  return false;
}

void End(const cli::ChildProcess& child, int signal) {
  child.Signal(signal);
  int status = 0;
  waitpid(child.pid(), &status, 0);
}

}  // namespace

std::string TinyModelPath() {
  return Environment("BATON_MODELS_DIR", BATON_SOURCE_DIR "/models") + "/tiny/target";
}

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const std::string& model, const std::vector<std::string>& flags,
    const std::map<std::string, std::string>& environment) {
  std::vector<std::string> args = {"serve", "--model=" + model, "--host=127.0.0.1", "--port=0",
                                   "--grpc-port=0"};
  args.insert(args.end(), flags.begin(), flags.end());
  auto serve =
      cli::ChildProcess::Spawn(Environment("BATON_BINARY", BATON_BINARY), args, environment);
  if (!serve.ok()) return serve.status();
  std::map<std::string, std::string> ready;
  if (AwaitReady(*serve, &ready)) {
    return std::unique_ptr<LocalCluster>(
        new LocalCluster(model, *std::move(serve), std::move(ready)));
  }
  End(*serve, SIGTERM);
  return absl::UnavailableError("the cluster did not become ready; see its output above");
}

absl::Status LocalCluster::Join(const std::string& command, const std::string& id,
                                const std::vector<std::string>& flags) {
  std::vector<std::string> args = {
      command,
      "--model=" + model_,
      "--worker-id=" + id,
      "--host=127.0.0.1",
      "--admin-port=0",
      "--threads=1",
      absl::StrCat("--routers=127.0.0.1:", Port("router", "session_port"))};
  args.insert(args.end(), flags.begin(), flags.end());
  auto worker = cli::ChildProcess::Spawn(Environment("BATON_BINARY", BATON_BINARY), args, {});
  if (!worker.ok()) return worker.status();
  std::map<std::string, std::string> ready;
  if (!AwaitReady(*worker, &ready)) {
    End(*worker, SIGKILL);
    return absl::UnavailableError(absl::StrCat(id, " did not become ready; see its output above"));
  }
  for (const auto& [key, value] : ready) ready_[absl::StrCat(id, ".", key)] = value;
  joined_.push_back(*std::move(worker));
  return absl::OkStatus();
}

LocalCluster::LocalCluster(std::string model, cli::ChildProcess serve,
                           std::map<std::string, std::string> ready)
    : model_(std::move(model)), serve_(std::move(serve)), ready_(std::move(ready)) {}

LocalCluster::~LocalCluster() { Stop(); }

int LocalCluster::Stop(absl::Duration patience) {
  if (!running_) return -1;
  running_ = false;
  for (const cli::ChildProcess& worker : joined_) End(worker, SIGKILL);
  serve_.Signal(SIGTERM);
  int status = 0;
  pid_t done = 0;
  WaitFor([&] { return (done = waitpid(serve_.pid(), &status, WNOHANG)) != 0; }, patience);
  if (done == serve_.pid()) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  serve_.Signal(SIGKILL);
  waitpid(serve_.pid(), &status, 0);
  return -1;
}

int LocalCluster::Port(const std::string& process, const std::string& key) const {
  const auto found = ready_.find(process + "." + key);
  return found == ready_.end() ? -1 : std::atoi(found->second.c_str());
}

pid_t LocalCluster::Pid(const std::string& process) const {
  // Children carry their worker id, or the router's command, on their command line.
  const std::string mark = process == "router" ? std::string("router") : "--worker-id=" + process;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid)) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    std::getline(stat, line);
    // After the name in parentheses: state, parent.
    const std::vector<std::string> fields =
        absl::StrSplit(line.substr(std::min(line.size(), line.rfind(')') + 2)), ' ');
    if (fields.size() < 2 || fields[0] == "Z" || fields[1] != absl::StrCat(serve_.pid())) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::string arguments((std::istreambuf_iterator<char>(file)), {});
    for (const absl::string_view argument : absl::StrSplit(arguments, '\0')) {
      if (argument == mark) return pid;
    }
  }
  return 0;
}

absl::StatusOr<HttpResult> LocalCluster::Post(std::string_view path,
                                              const nlohmann::json& body) const {
  return OneRequest(http_port(), "POST", path, body.dump());
}

absl::StatusOr<HttpResult> LocalCluster::Get(std::string_view path) const {
  return OneRequest(http_port(), "GET", path, "");
}

absl::StatusOr<HttpResult> LocalCluster::GetFrom(const std::string& process,
                                                 std::string_view path) const {
  return OneRequest(Port(process, process == "router" ? "http_port" : "admin_port"), "GET", path,
                    "");
}

double LocalCluster::Metric(const std::string& process, const std::string& series) const {
  const auto text = GetFrom(process, "/metrics");
  if (text.ok()) {
    for (const absl::string_view line : absl::StrSplit(text->body, '\n')) {
      if (!absl::StartsWith(line, series + " ")) continue;
      double value = 0;
      if (absl::SimpleAtod(line.substr(series.size() + 1), &value)) return value;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace baton::testing
