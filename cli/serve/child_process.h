#pragma once
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::cli {

// A child process, as a rule of this same executable. It reports that it is ready by one line
// "name=value name=value\n" on a pipe whose number it finds in BATON_READY_FD, and is told by the
// kernel (SIGTERM) when we die. Move-only; the destructor closes the pipe but does not kill.
class ChildProcess {
 public:
  // Starts `executable args...` in a process group of its own, with `environment` added to ours.
  // Output goes where ours goes.
  //   kInternal  the system refuses; says why
  static absl::StatusOr<ChildProcess> Spawn(const std::string& executable,
                                            const std::vector<std::string>& args,
                                            const std::map<std::string, std::string>& environment);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Read end of the ready pipe, non-blocking; -1 once it was closed.
  int ready_fd() const { return ready_fd_; }
  // Reads what the child wrote. True when the whole line is there: its pairs are in `values`.
  bool ReadReady(std::map<std::string, std::string>& values);
  void Signal(int signal) const;

 private:
  ChildProcess(pid_t pid, int ready_fd) : pid_(pid), ready_fd_(ready_fd) {}
  pid_t pid_ = -1;
  int ready_fd_ = -1;
  std::string line_;
};

// The child's side. Asks the kernel for SIGTERM when the parent dies. No-op when not supervised.
void DieWithSupervisor();
// Tells the supervisor that this process is ready. No-op when not supervised; call once.
void ReportReady(const std::map<std::string, std::string>& values);

}  // namespace baton::cli
