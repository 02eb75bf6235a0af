#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/config_field.h"

namespace baton::cli {

// One setting of a config struct with its type erased: what --help, the environment, a YAML file,
// docs/config.md and the redacted dump all walk. Points into the struct, which must outlive it.
struct Setting {
  std::string name;  // kebab-case
  std::string type;  // "bool", "integer", "number", "text", "duration", "list"
  std::string default_value;
  std::string help;
  FieldSpec spec;
  // Parses `text` and checks bounds and choices; kInvalidArgument names the setting, the value and
  // what is allowed.
  std::function<absl::Status(std::string_view text)> set;
  std::function<std::string()> get;
};

// Text forms of the field types, and back. Each parser gives kInvalidArgument with what was wrong.
absl::Status ParseValue(std::string_view text, const FieldSpec& spec, bool& value);
absl::Status ParseValue(std::string_view text, const FieldSpec& spec, int& value);
absl::Status ParseValue(std::string_view text, const FieldSpec& spec, std::int64_t& value);
absl::Status ParseValue(std::string_view text, const FieldSpec& spec, double& value);
absl::Status ParseValue(std::string_view text, const FieldSpec& spec, std::string& value);
absl::Status ParseValue(std::string_view text, const FieldSpec& spec, absl::Duration& value);
absl::Status ParseValue(std::string_view text, const FieldSpec& spec,
                        std::vector<std::string>& value);
std::string FormatValue(bool value);
std::string FormatValue(int value);
std::string FormatValue(std::int64_t value);
std::string FormatValue(double value);
std::string FormatValue(const std::string& value);
std::string FormatValue(absl::Duration value);
std::string FormatValue(const std::vector<std::string>& value);

template <class T>
constexpr const char* TypeName() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, int> || std::is_same_v<T, std::int64_t>) return "integer";
  if constexpr (std::is_same_v<T, double>) return "number";
  if constexpr (std::is_same_v<T, std::string>) return "text";
  if constexpr (std::is_same_v<T, absl::Duration>) return "duration";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "list";
}

// Puts the setting's name before a parse error.
absl::Status NameSetting(const absl::Status& status, std::string_view name);

// Lists every setting that `config.VisitFields` declares, in its order. A name declared twice (two
// parts of one process that share a setting) becomes one entry that sets both.
template <class Config>
std::vector<Setting> CollectSettings(Config& config) {
  std::vector<Setting> settings;
  config.VisitFields([&settings](auto& value, std::string_view name, const FieldSpec& spec,
                                 std::string_view help) {
    using T = std::remove_reference_t<decltype(value)>;
    auto set = [&value, spec, name = std::string(name)](std::string_view text) {
      return NameSetting(ParseValue(text, spec, value), name);
    };
    for (Setting& known : settings) {
      if (known.name != name) continue;
      known.set = [first = known.set, set](std::string_view text) {
        const absl::Status status = first(text);
        return status.ok() ? set(text) : status;
      };
      return;
    }
    settings.push_back({std::string(name), TypeName<T>(), FormatValue(value), std::string(help),
                        spec, set, [&value] { return FormatValue(value); }});
  });
  return settings;
}

// Of `names`, the one with the smallest edit distance to `unknown`, or empty when none is near.
std::string NearestName(std::string_view unknown, const std::vector<Setting>& settings);

}  // namespace baton::cli
