#pragma once
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/config/settings.h"

namespace baton::cli {

struct LoadedFrom {
  bool help = false;  // --help was given; nothing was loaded
  // Settings that were given anywhere, by name -> the text given.
  std::map<std::string, std::string> given;
  std::vector<std::string> positional;
};

// Fills `settings` from, in rising precedence: the YAML file named by --config FILE (or
// BATON_CONFIG), the environment (BATON_BLOCK_SIZE for block-size), the flags in `args`
// (--block-size 16, --block-size=16, --stream / --no-stream for a bool).
//   kInvalidArgument  an unknown flag or key (naming the nearest known one), a value out of bounds,
//                     a file that is no flat YAML map; the message says where it stood
//   kNotFound         the config file is missing
// Positional arguments are returned when `max_positional` allows as many, else refused.
absl::StatusOr<LoadedFrom> LoadSettings(std::vector<Setting>& settings,
                                        const std::vector<std::string>& args,
                                        size_t max_positional = 0);

// The --help text: usage line, then each flag with type, default, bounds and help.
std::string HelpText(const std::string& usage, const std::vector<Setting>& settings);
// "name=value ..." for the log at start, secrets as "***".
std::string RedactedDump(const std::vector<Setting>& settings);
// The rows of docs/config.md: a Markdown table.
std::string MarkdownTable(const std::vector<Setting>& settings);
// The environment variable of a setting: "BATON_BLOCK_SIZE".
std::string EnvironmentName(const std::string& setting_name);

}  // namespace baton::cli
