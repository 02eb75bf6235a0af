#include "text/tokenizer/space_mark_cuts.h"

#include "text/utf8.h"

namespace baton::text {
namespace {

// The character that ends at byte `end`, which is not the front of `text`.
char32_t CharacterBefore(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return ReadUtf8Unit(text.substr(begin)).code_point;
}

}  // namespace

void SpaceMarkCuts::AddToken(std::string_view token) {
  for (std::size_t at = token.find(kSpaceMark, 1); at != std::string_view::npos;
       at = token.find(kSpaceMark, at + 1)) {
    joined_.insert(CharacterBefore(token, at));
  }
}

std::size_t SpaceMarkCuts::FindCut(std::string_view text) const {
  for (std::size_t at = text.find(kSpaceMark, 1); at != std::string_view::npos;
       at = text.find(kSpaceMark, at + 1)) {
    if (!joined_.contains(CharacterBefore(text, at))) return at;
  }
  return text.size();
}

}  // namespace baton::text
