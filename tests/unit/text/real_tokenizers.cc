#include "tests/unit/text/real_tokenizers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "tests/support/test_paths.h"

namespace baton::text::testing {
namespace {

struct ScriptResult {
  bool ok = false;
  std::string output;  // stdout and stderr
};

ScriptResult RunScript(const std::string& name) {
  const std::string command = BATON_SOURCE_DIR "/scripts/get_tokenizers.sh '" + name + "' 2>&1";
  ScriptResult result;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  result.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return result;
}

void SkipForLackOf(const std::string& name) {
  GTEST_SKIP() << "the tokenizer " << name << " is not here, and BATON_NO_DOWNLOAD is set";
}

}  // namespace

std::string RealTokenizerFolder(const std::string& name) {
  if (name.empty() ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos) {
    ADD_FAILURE() << "no name of a tokenizer: \"" << name << "\"";
    return {};
  }
  ScriptResult result = RunScript(name);
  if (!result.ok) {
    if (baton::testing::FromEnvironment("BATON_NO_DOWNLOAD", "").empty()) {
      ADD_FAILURE() << "cannot get the real tokenizer " << name << ":\n" << result.output;
    } else {
      SkipForLackOf(name);
    }
    return {};
  }
  while (!result.output.empty() && result.output.back() == '\n') result.output.pop_back();
  return result.output.substr(result.output.rfind('\n') + 1) + "/" + name;
}

}  // namespace baton::text::testing
