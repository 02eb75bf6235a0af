#pragma once
#include <string>

#include "text/jinja/value.h"

namespace baton::text::jinja {

// The options of json.dumps. Separators left empty take Python's defaults.
struct JsonFormat {
  bool ensure_ascii = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator;
  std::string key_separator;
  bool sort_keys = false;
};

// Python's json.dumps. Throws Error: kRuntime for what JSON cannot hold, kLimit beyond `max_bytes`.
std::string ToJson(const Value& value, const JsonFormat& format, std::size_t max_bytes);

}  // namespace baton::text::jinja
