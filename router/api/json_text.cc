#include "router/api/json_text.h"

#include <charconv>
#include <cmath>

#include "text/utf8.h"

namespace baton::router {

void AppendJsonEscaped(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, done, i - done);
    done = i + 1;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out += "\\u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(text, done);
}

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  if (text::IsValidUtf8(text)) {
    AppendJsonEscaped(text, out);
  } else {
    AppendJsonEscaped(text::ToValidUtf8(text), out);
  }
  out += '"';
}

void AppendLogprob(float value, std::string& out) {
  if (!std::isfinite(value) || value < -9999.0f) {
    out += "-9999.0";
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  const std::string_view text(digits, end - digits);
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void AppendInt(std::int64_t value, std::string& out) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

void AppendIntArray(std::span<const std::int32_t> values, std::string& out) {
  out += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    AppendInt(values[i], out);
  }
  out += ']';
}

}  // namespace baton::router
