#pragma once
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace baton::testing {

// What a command of the shell prints, on either stream, and its exit code.
struct CommandOutcome {
  std::string output;
  int code = -1;
};

inline CommandOutcome RunCommand(const std::string& command) {
  CommandOutcome outcome;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char part[512];
  while (fgets(part, sizeof(part), pipe) != nullptr) outcome.output += part;
  outcome.code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

}  // namespace baton::testing
