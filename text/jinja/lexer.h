#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/error.h"
#include "text/jinja/value.h"

namespace baton::text::jinja {

enum class TokenKind : std::uint8_t {
  kText,  // outside tags
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kNumber,
  kOperator,  // text is the operator
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a name, operator, string (unescaped) or text
  Value value;       // of a number
  Position position;
};

// Cuts a template into tokens with trim_blocks and lstrip_blocks on and the last newline dropped,
// as transformers does. Comments are gone and raw blocks are text. Throws Error(kSyntax).
std::vector<Token> Tokenize(std::string_view source);

}  // namespace baton::text::jinja
