#pragma once
#include <cstddef>
#include <string_view>

#include "absl/container/flat_hash_set.h"

namespace baton::text {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

// Where a text without a pre-tokenizer may be cut into words without a change to what merging makes
// of it: before a space mark behind a character that no token of the vocabulary has before one.
class SpaceMarkCuts {
 public:
  void AddToken(std::string_view token);  // valid UTF-8, or it is left out

  // The end of the first part of `text` (valid UTF-8, not empty); its size if there is no cut.
  std::size_t FindCut(std::string_view text) const;

 private:
  absl::flat_hash_set<char32_t> joined_;  // characters that some token has before a space mark
};

}  // namespace baton::text
