#include "cli/serve/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/log.h"

namespace baton::cli {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(5);

void Say(const std::string& name, const std::string& text) {
  std::printf("%-10s %s\n", name.c_str(), text.c_str());
  std::fflush(stdout);
}

std::string DescribeExit(int wait_status) {
  if (WIFEXITED(wait_status))
    return absl::StrFormat("exited with code %d", WEXITSTATUS(wait_status));
  if (WIFSIGNALED(wait_status)) {
    return absl::StrFormat("was killed by signal %d (%s)", WTERMSIG(wait_status),
                           strsignal(WTERMSIG(wait_status)));
  }
  return "stopped";
}

}  // namespace

Supervisor::Supervisor(Options options, std::vector<std::vector<ChildSpec>> stages)
    : options_(std::move(options)), num_stages_(stages.size()) {
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (ChildSpec& spec : stages[stage]) {
      Child child;
      child.spec = std::move(spec);
      child.stage = stage;
      children_.push_back(std::move(child));
    }
  }
}

int Supervisor::Run() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGHUP}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  StartStage();
  while (Poll()) {
  }
  close(signal_fd_);
  Say("cluster", failed_ ? "stopped after a failure" : "stopped");
  return failed_ ? 1 : 0;
}

void Supervisor::StartStage() {
  for (Child& child : children_) {
    if (child.stage == stage_) Start(child);
  }
}

void Supervisor::Start(Child& child) {
  child.restart_at = absl::InfiniteFuture();
  child.ready = false;
  child.started = absl::Now();
  auto process =
      ChildProcess::Spawn("/proc/self/exe", child.spec.args(known_), child.spec.environment);
  if (!process.ok()) {
    log::Error("cannot start a process",
               {{"name", child.spec.name}, {"error", process.status().ToString()}});
    child.restart_at = absl::Now() + kLongestPause;
    return;
  }
  child.process = *std::move(process);
  Say(child.spec.name, absl::StrFormat("starting, pid %d%s%s", child.process->pid(),
                                       child.spec.note.empty() ? "" : ", ", child.spec.note));
}

void Supervisor::ReadReady(Child& child) {
  ReadyValues values;
  if (!child.process->ReadReady(values)) return;
  child.ready = child.ever_ready = true;
  child.failed_starts = 0;
  known_[child.spec.name + ".pid"] = absl::StrCat(child.process->pid());
  std::string shown;
  for (const auto& [key, value] : values) {
    known_[child.spec.name + "." + key] = value;
    shown += absl::StrFormat(", %s %s", key, value);
  }
  Say(child.spec.name, absl::StrFormat("ready after %.1f s%s",
                                       absl::ToDoubleSeconds(absl::Now() - child.started), shown));
  const bool stage_ready = std::all_of(children_.begin(), children_.end(), [&](const Child& c) {
    return c.stage > stage_ || c.ever_ready;
  });
  if (!stage_ready || stopping_ || announced_) return;
  if (stage_ + 1 < num_stages_) {
    ++stage_;
    StartStage();
    return;
  }
  announced_ = true;
  if (options_.on_ready) options_.on_ready(known_);
}

void Supervisor::Reap() {
  int wait_status = 0;
  for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    for (Child& child : children_) {
      if (child.process.has_value() && child.process->pid() == pid) OnExit(child, wait_status);
    }
  }
}

void Supervisor::OnExit(Child& child, int wait_status) {
  child.process.reset();
  const bool orderly = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
  if (stopping_) {
    Say(child.spec.name, orderly ? "stopped" : DescribeExit(wait_status));
    if (!orderly) failed_ = true;
    return;
  }
  if (!child.ready) ++child.failed_starts;
  const bool refused = WIFEXITED(wait_status);
  if (!child.ever_ready && (refused || child.failed_starts >= options_.max_failed_starts)) {
    Say(child.spec.name,
        DescribeExit(wait_status) + " before it was ready; giving up, see its log above");
    failed_ = true;
    OnSignal(SIGTERM);
    return;
  }
  absl::Duration pause = kFirstPause;
  for (int i = 1; i < child.failed_starts; ++i) pause = std::min(pause * 2, kLongestPause);
  child.restart_at = absl::Now() + pause;
  Say(child.spec.name, absl::StrFormat("%s; restarting in %s", DescribeExit(wait_status),
                                       absl::FormatDuration(pause)));
}

void Supervisor::OnSignal(int signal) {
  if (signal == SIGCHLD) return Reap();
  if (stopping_) {  // the second time: no more patience
    kill_at_ = absl::Now();
    return;
  }
  stopping_ = true;
  kill_at_ = absl::Now() + options_.grace;
  for (Child& child : children_) child.restart_at = absl::InfiniteFuture();
  Say("cluster", "stopping: draining; press Ctrl-C again to kill");
  // The first stage (the router) goes first: it stops taking requests and ends when its streams
  // did, while the workers still serve them.
  for (Child& child : children_) {
    if (child.stage == 0 && child.process.has_value()) child.process->Signal(SIGTERM);
  }
}

void Supervisor::StopNextKind() {
  if (!stopping_ || routers_told_) return;
  for (const Child& child : children_) {
    if (child.stage == 0 && child.process.has_value()) return;
  }
  routers_told_ = true;
  for (Child& child : children_) {
    if (child.process.has_value()) child.process->Signal(SIGTERM);
  }
}

void Supervisor::RestartDue() {
  for (Child& child : children_) {
    if (child.restart_at <= absl::Now()) Start(child);
  }
}

int Supervisor::NumAlive() const {
  return static_cast<int>(std::count_if(children_.begin(), children_.end(), [](const Child& child) {
    return child.process.has_value();
  }));
}

absl::Time Supervisor::NextWake() const {
  absl::Time wake = kill_at_;
  for (const Child& child : children_) wake = std::min(wake, child.restart_at);
  return wake;
}

bool Supervisor::Poll() {
  StopNextKind();
  if (stopping_ && NumAlive() == 0) return false;
  std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
  std::vector<Child*> owners = {nullptr};
  for (Child& child : children_) {
    if (!child.process.has_value() || child.process->ready_fd() < 0) continue;
    fds.push_back({child.process->ready_fd(), POLLIN, 0});
    owners.push_back(&child);
  }
  const absl::Duration wait = NextWake() - absl::Now();
  const int timeout =
      wait == absl::InfiniteDuration()
          ? -1
          : static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(wait) + 1));
  poll(fds.data(), fds.size(), timeout);
  for (size_t i = 1; i < fds.size(); ++i) {
    if (fds[i].revents != 0) ReadReady(*owners[i]);
  }
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    OnSignal(static_cast<int>(info.ssi_signo));
  }
  if (kill_at_ <= absl::Now()) {
    for (const Child& child : children_) {
      if (child.process.has_value()) child.process->Signal(SIGKILL);
    }
    kill_at_ = absl::InfiniteFuture();
  }
  RestartDue();
  return true;
}

}  // namespace baton::cli
