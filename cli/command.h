#pragma once
#include <string>
#include <vector>

namespace baton::cli {

// A sub-command: parses its own arguments, builds its objects, runs, and returns the exit code
// (0 success, 1 failure, 2 wrong usage).
struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args);
};

int RunServe(const std::vector<std::string>& args);
int RunRouter(const std::vector<std::string>& args);
int RunPrefill(const std::vector<std::string>& args);
int RunDecode(const std::vector<std::string>& args);
int RunBench(const std::vector<std::string>& args);
int RunChat(const std::vector<std::string>& args);
int RunReady(const std::vector<std::string>& args);
int RunInspect(const std::vector<std::string>& args);
int RunConfigDocs(const std::vector<std::string>& args);

}  // namespace baton::cli
