#include "cli/config/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace baton::cli {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Wrong(std::string_view text, std::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", Absl(text), "\" is not ", Absl(wanted)));
}

absl::Status CheckBounds(double value, std::string_view text, const FieldSpec& spec) {
  if (value >= spec.min && value <= spec.max) return absl::OkStatus();
  const std::string unit = spec.unit.empty() ? "" : absl::StrCat(" ", Absl(spec.unit));
  if (std::isinf(spec.max)) {
    return Wrong(text, absl::StrFormat("%g or more%s", spec.min, unit));
  }
  return Wrong(text, absl::StrFormat("in %g..%g%s", spec.min, spec.max, unit));
}

// Plain integers and sizes with a binary suffix: 512M, 2GiB, 64k.
bool ParseInteger(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  std::string suffix = absl::AsciiStrToLower(
      absl::string_view(end, static_cast<size_t>(text.data() + text.size() - end)));
  if (suffix.empty()) return true;
  const std::string_view letters = "kmgt";
  const size_t power = letters.find(suffix[0]);
  if (power == std::string_view::npos) return false;
  suffix.erase(0, 1);
  if (!suffix.empty() && suffix != "b" && suffix != "ib") return false;
  return !__builtin_mul_overflow(value, std::int64_t{1} << (10 * (power + 1)), &value);
}

}  // namespace

absl::Status NameSetting(const absl::Status& status, std::string_view name) {
  return Annotate(status, absl::StrCat("setting ", Absl(name)));
}

absl::Status ParseValue(std::string_view text, const FieldSpec&, bool& value) {
  const std::string lower = absl::AsciiStrToLower(Absl(text));
  if (lower == "true" || lower == "1" || lower == "yes" || lower == "on") {
    value = true;
  } else if (lower == "false" || lower == "0" || lower == "no" || lower == "off") {
    value = false;
  } else {
    return Wrong(text, "true or false");
  }
  return absl::OkStatus();
}

absl::Status ParseValue(std::string_view text, const FieldSpec& spec, int& value) {
  std::int64_t wide = 0;
  BATON_RETURN_IF_ERROR(ParseValue(text, spec, wide));
  if (wide != static_cast<int>(wide)) return Wrong(text, "a 32-bit integer");
  value = static_cast<int>(wide);
  return absl::OkStatus();
}

absl::Status ParseValue(std::string_view text, const FieldSpec& spec, std::int64_t& value) {
  std::int64_t parsed = 0;
  if (!ParseInteger(text, parsed)) return Wrong(text, "an integer");
  BATON_RETURN_IF_ERROR(CheckBounds(static_cast<double>(parsed), text, spec));
  value = parsed;
  return absl::OkStatus();
}

absl::Status ParseValue(std::string_view text, const FieldSpec& spec, double& value) {
  double parsed = 0;
  if (!absl::SimpleAtod(Absl(text), &parsed) || std::isnan(parsed)) return Wrong(text, "a number");
  BATON_RETURN_IF_ERROR(CheckBounds(parsed, text, spec));
  value = parsed;
  return absl::OkStatus();
}

absl::Status ParseValue(std::string_view text, const FieldSpec& spec, std::string& value) {
  if (!spec.choices.empty() &&
      std::find(spec.choices.begin(), spec.choices.end(), text) == spec.choices.end()) {
    std::vector<std::string> choices(spec.choices.begin(), spec.choices.end());
    return Wrong(text, "one of " + absl::StrJoin(choices, ", "));
  }
  value = std::string(text);
  return absl::OkStatus();
}

absl::Status ParseValue(std::string_view text, const FieldSpec& spec, absl::Duration& value) {
  absl::Duration parsed;
  double seconds = 0;
  if (absl::SimpleAtod(Absl(text), &seconds)) {
    parsed = absl::Seconds(seconds);  // a bare number is in seconds
  } else if (!absl::ParseDuration(std::string(text), &parsed)) {
    return Wrong(text, "a duration such as 250ms, 10s or 5m");
  }
  BATON_RETURN_IF_ERROR(CheckBounds(absl::ToDoubleSeconds(parsed), text, spec));
  value = parsed;
  return absl::OkStatus();
}

absl::Status ParseValue(std::string_view text, const FieldSpec&, std::vector<std::string>& value) {
  value = absl::StrSplit(Absl(text), ',', absl::SkipWhitespace());
  for (std::string& item : value) item = std::string(absl::StripAsciiWhitespace(item));
  return absl::OkStatus();
}

std::string FormatValue(bool value) { return value ? "true" : "false"; }
std::string FormatValue(int value) { return absl::StrCat(value); }
std::string FormatValue(std::int64_t value) { return absl::StrCat(value); }
std::string FormatValue(double value) { return absl::StrFormat("%g", value); }
std::string FormatValue(const std::string& value) { return value; }
std::string FormatValue(absl::Duration value) { return absl::FormatDuration(value); }
std::string FormatValue(const std::vector<std::string>& value) { return absl::StrJoin(value, ","); }

std::string NearestName(std::string_view unknown, const std::vector<Setting>& settings) {
  std::string best;
  size_t best_distance = unknown.size() / 2 + 1;  // farther than half the word is no help
  for (const Setting& setting : settings) {
    const std::string& name = setting.name;
    std::vector<size_t> row(name.size() + 1);
    for (size_t j = 0; j <= name.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= unknown.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= name.size(); ++j) {
        const size_t above = row[j];
        row[j] = std::min(
            {row[j] + 1, row[j - 1] + 1, diagonal + (unknown[i - 1] == name[j - 1] ? 0u : 1u)});
        diagonal = above;
      }
    }
    if (row[name.size()] < best_distance) {
      best_distance = row[name.size()];
      best = name;
    }
  }
  return best;
}

}  // namespace baton::cli
