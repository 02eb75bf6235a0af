#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace baton::text::jinja {

// The value of a string literal's inside, with Python's escape sequences (\n, \x41, \u00e9, \101,
// a backslash before a newline); unknown ones stay as they are. Nothing for a malformed one, for
// \N{...} and for a lone surrogate.
std::optional<std::string> UnescapeString(std::string_view literal);

}  // namespace baton::text::jinja
