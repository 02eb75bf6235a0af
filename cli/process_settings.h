#pragma once
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/loader.h"

namespace baton::cli {

// Loads `config` for the sub-command `name`, or says why not, or prints its help. Gives the exit
// code when the command is thereby over.
template <class Config>
std::optional<int> LoadOrExplain(const char* name, const std::vector<std::string>& args,
                                 Config& config, std::string* dump) {
  auto settings = CollectSettings(config);
  const auto loaded = LoadSettings(settings, args);
  if (!loaded.ok()) {
    std::fprintf(stderr, "baton %s: %s\n", name, std::string(loaded.status().message()).c_str());
    return 2;
  }
  if (loaded->help) {
    std::printf(
        "%s",
        HelpText(std::string("usage: baton ") + name + " [--SETTING VALUE ...]", settings).c_str());
    return 0;
  }
  *dump = RedactedDump(settings);
  return std::nullopt;
}

}  // namespace baton::cli
