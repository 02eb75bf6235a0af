#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/regex.h"

namespace baton::text {

// A text on its way to becoming words: views into the text, or into `owned` where a step had to
// rewrite a piece.
struct Pieces {
  std::vector<std::string_view> views;  // none is empty
  std::deque<std::string> owned;        // a deque: growing it moves no string
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

// Cuts at the matches of `regex`, or with `invert` at what lies between them.
std::unique_ptr<PreTokenizer> MakeSplit(Regex regex, SplitBehavior behavior, bool invert);

// Puts a space before each piece that begins with none.
std::unique_ptr<PreTokenizer> MakePrefixSpace();

}  // namespace baton::text
