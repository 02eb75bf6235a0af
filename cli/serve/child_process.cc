#include "cli/serve/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace baton::cli {
namespace {

constexpr char kReadyVariable[] = "BATON_READY_FD";
constexpr char kParentVariable[] = "BATON_SUPERVISOR_PID";

// Ours plus `added`, which replaces variables of the same name.
std::vector<std::string> MakeEnvironment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (!added.contains(name)) result.emplace_back(*entry);
  }
  for (const auto& [name, value] : added) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Spawn(
    const std::string& executable, const std::vector<std::string>& args,
    const std::map<std::string, std::string>& environment) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::InternalError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  // The child gets the write end under a number of its own, without close-on-exec.
  const int inherited = fcntl(fds[1], F_DUPFD, 3);
  std::map<std::string, std::string> added = environment;
  added[kReadyVariable] = absl::StrCat(inherited);
  added[kParentVariable] = absl::StrCat(getpid());
  std::vector<std::string> variables = MakeEnvironment(added);
  std::vector<std::string> arguments = {"baton"};
  arguments.insert(arguments.end(), args.begin(), args.end());

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A process group of its own, so that Ctrl-C reaches the supervisor alone, and no blocked
  // signals.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, executable.c_str(), nullptr, &attributes,
                                Pointers(arguments).data(), Pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  close(fds[1]);
  close(inherited);
  if (error != 0) {
    close(fds[0]);
    return absl::InternalError(
        absl::StrCat("cannot start ", executable, ": ", std::strerror(error)));
  }
  return ChildProcess(pid, fds[0]);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      ready_fd_(std::exchange(other.ready_fd_, -1)),
      line_(std::move(other.line_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(ready_fd_, other.ready_fd_);
  std::swap(line_, other.line_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (ready_fd_ >= 0) close(ready_fd_);
}

bool ChildProcess::ReadReady(std::map<std::string, std::string>& values) {
  char chunk[512];
  ssize_t got;
  while ((got = read(ready_fd_, chunk, sizeof(chunk))) > 0) {
    line_.append(chunk, static_cast<size_t>(got));
  }
  const size_t end = line_.find('\n');
  if (got == 0 || end != std::string::npos) {  // closed, or all there is to come
    close(ready_fd_);
    ready_fd_ = -1;
  }
  if (end == std::string::npos) return false;
  for (const absl::string_view pair :
       absl::StrSplit(line_.substr(0, end), ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    values.insert(parts);
  }
  return true;
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

void DieWithSupervisor() {
  const char* const parent = std::getenv(kParentVariable);
  if (parent == nullptr) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The supervisor may have died before the request.
  if (getppid() != static_cast<pid_t>(std::atol(parent))) raise(SIGTERM);
}

void ReportReady(const std::map<std::string, std::string>& values) {
  const char* const variable = std::getenv(kReadyVariable);
  if (variable == nullptr) return;
  const int fd = std::atoi(variable);
  std::string line;
  for (const auto& [name, value] : values) absl::StrAppend(&line, name, "=", value, " ");
  line += '\n';
  // Less than a pipe's atomic size; a supervisor that is gone is no fault of ours.
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
  close(fd);
}

}  // namespace baton::cli
