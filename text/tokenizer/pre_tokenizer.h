#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/pattern.h"
#include "text/tokenizer/regex.h"

namespace baton::text {

// A text on its way to becoming words: views into the text, or into `owned` where a step had to
// rewrite a piece.
struct Pieces {
  std::vector<std::string_view> views;  // none is empty
  std::deque<std::string> owned;        // a deque: growing it moves no string
  bool at_front = true;  // views[0] begins where the text given to Tokenizer::Encode begins
};

// A step that cuts pieces into smaller ones. Immutable and thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void Apply(Pieces& pieces) const = 0;
};

// What becomes of the parts of a piece that match a Split's pattern.
enum class SplitBehavior : std::uint8_t {
  kRemoved,
  kIsolated,            // "a-b" -> "a" "-" "b"
  kMergedWithPrevious,  // "a-b" -> "a-" "b"
  kMergedWithNext,      // "a-b" -> "a" "-b"
  kContiguous,          // like isolated, but neighbouring matches stay together
};

// Cuts at the matches of `pattern`, or with `invert` at what lies between them.
std::unique_ptr<PreTokenizer> MakeSplit(std::unique_ptr<Pattern> pattern, SplitBehavior behavior,
                                        bool invert);
std::unique_ptr<PreTokenizer> MakeSplit(Regex regex, SplitBehavior behavior, bool invert);

// Puts a space before each piece that begins with none.
std::unique_ptr<PreTokenizer> MakePrefixSpace();

// Spells each piece's bytes in the alphabet of byte_level.h.
std::unique_ptr<PreTokenizer> MakeByteAlphabet();

// Where a Metaspace puts its character in front of a piece that does not begin with it.
enum class PrependScheme : std::uint8_t {
  kNever,
  kFirst,  // only of the piece at the front of the text
  kAlways,
};

// Replaces spaces by `replacement`, one character, which with `split` begins a new piece each time.
// SentencePiece's escape of white space.
std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, PrependScheme prepend,
                                            bool split);

}  // namespace baton::text
