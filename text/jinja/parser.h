#pragma once
#include <string_view>

#include "text/jinja/ast.h"

namespace baton::text::jinja {

// Parses a template and checks every tag, filter, test and function it names. Throws Error:
// kSyntax, or kUnsupported for a name that does not exist here.
Ast Parse(std::string_view source);

}  // namespace baton::text::jinja
