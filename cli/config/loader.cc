#include "cli/config/loader.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"

namespace baton::cli {
namespace {

Setting* Find(std::vector<Setting>& settings, const std::string& name) {
  const auto found = std::find_if(settings.begin(), settings.end(), [&](const Setting& setting) {
    return setting.name == name || (!name.empty() && setting.spec.alias == name);
  });
  return found == settings.end() ? nullptr : &*found;
}

absl::Status Unknown(const std::string& what, const std::string& name,
                     const std::vector<Setting>& settings) {
  const std::string nearest = NearestName(name, settings);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", what, " ", name,
                   nearest.empty() ? "; see --help for the list"
                                   : absl::StrCat("; did you mean ", nearest, "?")));
}

absl::Status ApplyFile(const std::string& path, std::vector<Setting>& settings,
                       LoadedFrom& loaded) {
  if (!std::ifstream(path).good()) {
    return absl::NotFoundError(absl::StrCat("config file not readable: ", path));
  }
  try {
    const YAML::Node root = YAML::LoadFile(path);
    if (root.IsNull()) return absl::OkStatus();
    if (!root.IsMap()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": must be a map of settings, one \"name: value\" a line"));
    }
    for (const auto& entry : root) {
      // Underscores are accepted for dashes, as vLLM's config files have both.
      const std::string name = absl::StrReplaceAll(entry.first.as<std::string>(), {{"_", "-"}});
      const std::string place = absl::StrFormat("%s line %d", path, entry.first.Mark().line + 1);
      Setting* const setting = Find(settings, name);
      if (setting == nullptr) return Annotate(Unknown("key", name, settings), place);
      std::string text;
      if (entry.second.IsSequence()) {
        std::vector<std::string> items;
        for (const auto& item : entry.second) items.push_back(item.as<std::string>());
        text = absl::StrJoin(items, ",");
      } else if (entry.second.IsScalar()) {
        text = entry.second.as<std::string>();
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat(place, ": ", name, " must be one value or a list"));
      }
      BATON_RETURN_IF_ERROR(Annotate(setting->set(text), place));
      loaded.given[setting->name] = text;
    }
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not valid YAML: ", error.what()));
  }
  return absl::OkStatus();
}

absl::Status ApplyEnvironment(std::vector<Setting>& settings, LoadedFrom& loaded) {
  for (Setting& setting : settings) {
    const std::string variable = EnvironmentName(setting.name);
    const char* const text = std::getenv(variable.c_str());
    if (text == nullptr) continue;
    BATON_RETURN_IF_ERROR(Annotate(setting.set(text), "environment " + variable));
    loaded.given[setting.name] = text;
  }
  return absl::OkStatus();
}

// Splits `args` into (setting name, value) pairs and positional arguments.
absl::Status ParseFlags(const std::vector<std::string>& args, std::vector<Setting>& settings,
                        std::string* config_path,
                        std::vector<std::pair<Setting*, std::string>>& flags, LoadedFrom& loaded) {
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help" || arg == "-h") {
      loaded.help = true;
      return absl::OkStatus();
    }
    if (!absl::StartsWith(arg, "--")) {
      loaded.positional.push_back(arg);
      continue;
    }
    const size_t equals = arg.find('=');
    std::string name = absl::StrReplaceAll(arg.substr(2, equals - 2), {{"_", "-"}});
    std::optional<std::string> value;
    if (equals != std::string::npos) value = arg.substr(equals + 1);
    Setting* setting = Find(settings, name);
    if (setting == nullptr && !value.has_value() && absl::StartsWith(name, "no-")) {
      setting = Find(settings, name.substr(3));
      if (setting != nullptr && setting->type == "bool") {
        flags.emplace_back(setting, "false");
        continue;
      }
      setting = nullptr;
    }
    if (setting == nullptr && name != "config") return Unknown("flag", "--" + name, settings);
    if (!value.has_value() && setting != nullptr && setting->type == "bool") {
      value = "true";
    } else if (!value.has_value()) {
      if (i + 1 >= args.size()) {
        return absl::InvalidArgumentError(absl::StrCat("flag --", name, " needs a value"));
      }
      value = args[++i];
    }
    if (setting == nullptr) {
      *config_path = *value;
    } else {
      flags.emplace_back(setting, *value);
    }
  }
  return absl::OkStatus();
}

std::string Bounds(const Setting& setting) {
  std::vector<std::string> parts;
  if (!setting.spec.unit.empty()) parts.emplace_back(setting.spec.unit);
  if (!setting.spec.choices.empty()) {
    std::vector<std::string> choices(setting.spec.choices.begin(), setting.spec.choices.end());
    parts.push_back(absl::StrJoin(choices, " | "));
  }
  const bool low = !std::isinf(setting.spec.min), high = !std::isinf(setting.spec.max);
  if (low && high) {
    parts.push_back(absl::StrFormat("%g..%g", setting.spec.min, setting.spec.max));
  } else if (low) {
    parts.push_back(absl::StrFormat(">= %g", setting.spec.min));
  } else if (high) {
    parts.push_back(absl::StrFormat("<= %g", setting.spec.max));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

std::string EnvironmentName(const std::string& setting_name) {
  return "BATON_" + absl::AsciiStrToUpper(absl::StrReplaceAll(setting_name, {{"-", "_"}}));
}

absl::StatusOr<LoadedFrom> LoadSettings(std::vector<Setting>& settings,
                                        const std::vector<std::string>& args,
                                        size_t max_positional) {
  LoadedFrom loaded;
  std::string config_path;
  if (const char* path = std::getenv("BATON_CONFIG")) config_path = path;
  std::vector<std::pair<Setting*, std::string>> flags;
  BATON_RETURN_IF_ERROR(ParseFlags(args, settings, &config_path, flags, loaded));
  if (loaded.help) return loaded;
  if (loaded.positional.size() > max_positional) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument \"", loaded.positional[max_positional], "\""));
  }
  if (!config_path.empty()) BATON_RETURN_IF_ERROR(ApplyFile(config_path, settings, loaded));
  BATON_RETURN_IF_ERROR(ApplyEnvironment(settings, loaded));
  for (const auto& [setting, text] : flags) {
    BATON_RETURN_IF_ERROR(Annotate(setting->set(text), "flag --" + setting->name));
    loaded.given[setting->name] = text;
  }
  return loaded;
}

std::string HelpText(const std::string& usage, const std::vector<Setting>& settings) {
  std::string text = usage +
                     "\n\nSettings (flag, or environment BATON_NAME, or a key of the YAML "
                     "file given by --config FILE):\n";
  for (const Setting& setting : settings) {
    absl::StrAppend(&text, "  --", setting.name);
    if (!setting.spec.alias.empty()) {
      absl::StrAppend(&text, ", --", std::string(setting.spec.alias));
    }
    absl::StrAppend(&text, " <", setting.type, ">\n      ", setting.help);
    const std::string bounds = Bounds(setting);
    if (!bounds.empty()) absl::StrAppend(&text, " [", bounds, "]");
    if (!setting.default_value.empty() && !setting.spec.secret) {
      absl::StrAppend(&text, " (default: ", setting.default_value, ")");
    }
    text += '\n';
  }
  return text;
}

std::string RedactedDump(const std::vector<Setting>& settings) {
  std::vector<std::string> parts;
  for (const Setting& setting : settings) {
    const std::string value = setting.get();
    parts.push_back(
        absl::StrCat(setting.name, "=", setting.spec.secret && !value.empty() ? "***" : value));
  }
  return absl::StrJoin(parts, " ");
}

std::string MarkdownTable(const std::vector<Setting>& settings) {
  std::string text = "| setting | type | default | bounds | meaning |\n|---|---|---|---|---|\n";
  for (const Setting& setting : settings) {
    const std::string bounds = absl::StrReplaceAll(Bounds(setting), {{"|", "\\|"}});
    const std::string alias =
        setting.spec.alias.empty() ? "" : absl::StrCat(", `", std::string(setting.spec.alias), "`");
    absl::StrAppend(
        &text, "| `", setting.name, "`", alias, " | ", setting.type, " | ",
        setting.default_value.empty() ? "" : absl::StrCat("`", setting.default_value, "`"), " | ",
        bounds, " | ", absl::StrReplaceAll(setting.help, {{"|", "\\|"}}), " |\n");
  }
  return text;
}

}  // namespace baton::cli
