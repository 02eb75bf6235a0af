#include "tests/support/line_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/time/clock.h"
#include "common/check.h"

extern char** environ;

namespace baton {

LineProcess::LineProcess(const std::vector<std::string>& command) {
  int to_child[2];
  int from_child[2];
  BATON_CHECK(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(from_child, O_CLOEXEC) == 0, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int error = posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  BATON_CHECK(error == 0, "a child process of a test cannot be started");
  close(to_child[0]);
  close(from_child[1]);
  in_ = to_child[1];
  out_ = from_child[0];
}

LineProcess::~LineProcess() {
  Kill();
  close(in_);
  close(out_);
}

void LineProcess::WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  BATON_CHECK(write(in_, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
              "a child process of a test takes no lines");
}

std::optional<std::string> LineProcess::ReadLine(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const std::size_t end = buffered_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    pollfd ready{.fd = out_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) <= 0) {
      return std::nullopt;
    }
    std::array<char, 4096> chunk;
    const ssize_t size = read(out_, chunk.data(), chunk.size());
    if (size <= 0) return std::nullopt;
    buffered_.append(chunk.data(), size);
  }
}

std::optional<std::string> LineProcess::ReadLineWith(const std::string& prefix,
                                                     absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (auto line = ReadLine(deadline - absl::Now())) {
    if (line->rfind(prefix, 0) == 0) return line;
  }
  return std::nullopt;
}

void LineProcess::Signal(int signal) { kill(pid_, signal); }

void LineProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace baton
