#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace baton {

// A child process that a test talks to in lines over its stdin and stdout. Killed and reaped when
// destroyed. Not thread-safe.
class LineProcess {
 public:
  // Aborts the test program when the process cannot be started.
  explicit LineProcess(const std::vector<std::string>& command);
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;
  ~LineProcess();

  void WriteLine(const std::string& line);
  // The next line; empty when none came within `timeout` or the process has ended.
  std::optional<std::string> ReadLine(absl::Duration timeout = absl::Seconds(20));
  // Skips lines until one that begins with `prefix`.
  std::optional<std::string> ReadLineWith(const std::string& prefix,
                                          absl::Duration timeout = absl::Seconds(20));
  void Signal(int signal);
  void Kill();  // SIGKILL, and waits for the end
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string buffered_;
};

}  // namespace baton
