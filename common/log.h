#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

// One line an event: a fixed message and named values, as text or JSON on stderr. Thread-safe.
namespace baton::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// A named value. Numbers stay numbers in JSON.
struct Field {
  Field(std::string_view field_name, std::string_view text) : name(field_name), value(text) {}
  Field(std::string_view field_name, const char* text) : name(field_name), value(text) {}
  Field(std::string_view field_name, const std::string& text) : name(field_name), value(text) {}
  Field(std::string_view field_name, bool yes)
      : name(field_name), value(yes ? "true" : "false"), quoted(false) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> Field(std::string_view field_name, Number number)
      : name(field_name), value(absl::StrCat(number)), quoted(false) {}
  std::string_view name;
  std::string value;
  bool quoted = true;
};

struct Options {
  Level level = Level::kInfo;
  bool json = false;
  std::string process;  // stands in every line: "router", "prefill-0"
};
void Configure(const Options& options);
bool Enabled(Level level);

void Write(Level level, std::string_view message, std::initializer_list<Field> fields);
inline void Debug(std::string_view message, std::initializer_list<Field> fields = {}) {
  if (Enabled(Level::kDebug)) Write(Level::kDebug, message, fields);
}
inline void Info(std::string_view message, std::initializer_list<Field> fields = {}) {
  Write(Level::kInfo, message, fields);
}
inline void Warn(std::string_view message, std::initializer_list<Field> fields = {}) {
  Write(Level::kWarn, message, fields);
}
inline void Error(std::string_view message, std::initializer_list<Field> fields = {}) {
  Write(Level::kError, message, fields);
}

}  // namespace baton::log
