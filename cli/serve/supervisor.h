#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/serve/child_process.h"

namespace baton::cli {

// What a child reported when it became ready: "http_port" -> "8000", ...
using ReadyValues = std::map<std::string, std::string>;

// One process of a local cluster.
struct ChildSpec {
  std::string name;  // "router", "prefill-0"
  // Command line after the executable. `known` holds what every child that is ready reported, by
  // "name.key": "router.session_port".
  std::function<std::vector<std::string>(const ReadyValues& known)> args;
  std::map<std::string, std::string> environment;  // secrets go here, not on the command line
  std::string note;                                // shown when it starts: "2 threads, nice 10"
};

// Starts processes in stages (a stage starts when the one before it is ready), shows what starts
// and what is ready, restarts one that dies (after 0.2 s, doubling to 5 s while it keeps dying),
// and on SIGINT or SIGTERM asks all to drain, workers first, and kills what outlives the grace.
// A second signal kills at once. Single-threaded; one per process.
class Supervisor {
 public:
  struct Options {
    absl::Duration grace = absl::Seconds(35);  // from the first signal to SIGKILL
    // A child that is killed before it was ever ready this often in a row ends the cluster. One
    // that exits by itself has said why it can't start, and ends it at once: a wrong setting or a
    // model that is refused is not cured by trying again.
    int max_failed_starts = 3;
    // Called once, when every process is ready for the first time.
    std::function<void(const ReadyValues& known)> on_ready;
  };
  Supervisor(Options options, std::vector<std::vector<ChildSpec>> stages);
  // Runs until told to stop. 0 after an orderly stop, 1 when the cluster could not start or a
  // process had to be killed.
  int Run();

 private:
  struct Child {
    ChildSpec spec;
    size_t stage = 0;
    std::optional<ChildProcess> process;
    bool ready = false;
    bool ever_ready = false;
    int failed_starts = 0;
    absl::Time started;
    absl::Time restart_at = absl::InfiniteFuture();
  };

  void StartStage();
  void Start(Child& child);
  void ReadReady(Child& child);
  void Reap();
  void OnExit(Child& child, int wait_status);
  void OnSignal(int signal);
  void StopNextKind();
  void RestartDue();
  bool Poll();
  absl::Time NextWake() const;
  int NumAlive() const;

  const Options options_;
  std::vector<Child> children_;
  size_t num_stages_ = 0;
  size_t stage_ = 0;
  bool announced_ = false;
  bool stopping_ = false;
  bool failed_ = false;
  bool routers_told_ = false;
  absl::Time kill_at_ = absl::InfiniteFuture();
  ReadyValues known_;
  int signal_fd_ = -1;
};

}  // namespace baton::cli
