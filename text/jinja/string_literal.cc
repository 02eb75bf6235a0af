#include "text/jinja/string_literal.h"

#include <algorithm>
#include <charconv>

#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

// Reads `count` hexadecimal digits at the front of `rest`.
std::optional<char32_t> ReadHex(std::string_view rest, std::size_t count) {
  if (rest.size() < count) return std::nullopt;
  std::uint32_t value = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + count, value, 16);
  if (result.ec != std::errc() || result.ptr != rest.data() + count) return std::nullopt;
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return std::nullopt;
  return static_cast<char32_t>(value);
}

std::size_t NumOctalDigits(std::string_view rest) {
  std::size_t count = 0;
  while (count < 3 && count < rest.size() && rest[count] >= '0' && rest[count] <= '7') ++count;
  return count;
}

}  // namespace

std::optional<std::string> UnescapeString(std::string_view literal) {
  constexpr std::string_view kSimple = "\\'\"abfnrtv";
  constexpr std::string_view kSimpleValues = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  while (!literal.empty()) {
    const std::size_t backslash = literal.find('\\');
    out += literal.substr(0, backslash);
    if (backslash == std::string_view::npos || backslash + 1 == literal.size()) break;
    const char c = literal[backslash + 1];
    literal.remove_prefix(backslash + 2);
    const std::size_t num_hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (const std::size_t at = kSimple.find(c); at != std::string_view::npos) {
      out += kSimpleValues[at];
    } else if (num_hex > 0) {
      const std::optional<char32_t> code_point = ReadHex(literal, num_hex);
      if (!code_point) return std::nullopt;
      AppendUtf8(*code_point, out);
      literal.remove_prefix(num_hex);
    } else if (c >= '0' && c <= '7') {
      const std::size_t more = NumOctalDigits(literal);
      char32_t value = static_cast<char32_t>(c - '0');
      for (std::size_t i = 0; i < std::min<std::size_t>(more, 2); ++i) {
        value = value * 8 + static_cast<char32_t>(literal[i] - '0');
      }
      AppendUtf8(value, out);
      literal.remove_prefix(std::min<std::size_t>(more, 2));
    } else if (c == 'N') {
      return std::nullopt;
    } else if (c != '\n') {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace baton::text::jinja
