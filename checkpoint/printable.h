#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace baton::checkpoint {

// Text from a file made fit for an error message: in single quotes, control and non-ASCII bytes
// escaped, cut after 96 bytes.
std::string Quoted(std::string_view text);

// "[49152, 576]".
std::string ShapeText(std::span<const std::int64_t> shape);

// The element types a tensor may have, for messages: "F32, F16, ...".
std::string SupportedDTypes();

}  // namespace baton::checkpoint
