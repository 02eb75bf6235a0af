#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/tokenizer/regex.h"

namespace baton::text {

// What a Split or Replace looks for: a regular expression, a literal or a class of characters.
// Immutable and thread-safe.
class Pattern {
 public:
  virtual ~Pattern() = default;
  // The first match at or after byte `from` of `text`, which is valid UTF-8; may be empty.
  virtual std::optional<Regex::Match> Find(std::string_view text, std::size_t from) const = 0;
};

std::unique_ptr<Pattern> MakeRegexPattern(Regex regex);
// An empty literal matches between all characters, as an empty expression does.
std::unique_ptr<Pattern> MakeLiteralPattern(std::string literal);
// One character for which `is_in` holds.
std::unique_ptr<Pattern> MakeClassPattern(bool (*is_in)(char32_t));

// The byte after the character at `at`.
std::size_t NextCharacter(std::string_view text, std::size_t at);

// Gives out all of `text` as callback(begin, end, is_match), in order. Matches may be empty, what
// lies between is not. The rules for empty matches are the reference's: none right behind a match,
// none in an empty text.
template <class Callback>
void ForEachPart(const Pattern& pattern, std::string_view text, Callback callback) {
  std::size_t done = 0;  // everything before it has been given out
  std::size_t from = 0;
  std::optional<std::size_t> last_end;  // of the match before
  while (!text.empty() && from <= text.size()) {
    const std::optional<Regex::Match> match = pattern.Find(text, from);
    if (!match) break;
    if (match->begin == match->end && match->end == last_end) {
      if (from == text.size()) break;
      from = NextCharacter(text, from);
      continue;
    }
    if (match->begin > done) callback(done, match->begin, false);
    callback(match->begin, match->end, true);
    done = from = match->end;
    last_end = match->end;
  }
  if (done < text.size()) callback(done, text.size(), false);
}

}  // namespace baton::text
