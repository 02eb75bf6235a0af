#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace baton::text::jinja {

// How Python prints values. Those that walk through values throw Error(kLimit) when the text grows
// beyond `max_bytes`.
inline constexpr std::size_t kMaxPrintedBytes = std::size_t{32} << 20;

// repr(float): the shortest digits that read back equal, "1.0", "1e-07", "inf".
std::string FloatRepr(double value);

// repr(str): quotes as Python chooses them, unprintable characters escaped.
std::string StringRepr(std::string_view text);

std::string Repr(const Value& value, std::size_t max_bytes = kMaxPrintedBytes);

// str(value): what {{ value }} prints. Undefined prints as nothing.
std::string ToString(const Value& value, std::size_t max_bytes = kMaxPrintedBytes);

// The name of the value's type, for messages: "str", "list", ...
std::string_view TypeName(const Value& value);

}  // namespace baton::text::jinja
