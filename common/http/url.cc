#include "common/http/url.h"

#include <optional>
#include <string>

namespace baton::http {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> Decode(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexValue(text[i + 1]), low = HexValue(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

}  // namespace

bool ParseTarget(std::string_view target, Request* request) {
  const std::size_t question = target.find('?');
  const auto path = Decode(target.substr(0, question), /*plus_is_space=*/false);
  if (!path.has_value() || path->empty() || path->front() != '/') return false;
  request->path = *path;
  if (question == std::string_view::npos) return true;
  std::string_view rest = target.substr(question + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    const auto key = Decode(pair.substr(0, equals), /*plus_is_space=*/true);
    const auto value =
        equals == std::string_view::npos ? std::string() : Decode(pair.substr(equals + 1), true);
    if (!key.has_value() || !value.has_value()) return false;
    if (!key->empty()) request->query[*key] = *value;
  }
  return true;
}

}  // namespace baton::http
