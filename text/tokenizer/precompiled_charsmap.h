#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::text {

// SentencePiece's table of character sequences and what each becomes (mostly NFKC): a double array
// as of darts-clone behind its size in bytes, then the replacements, each ended by a zero byte. All
// numbers are little-endian. Immutable and thread-safe.
class PrecompiledCharsmap {
 public:
  struct Match {
    std::size_t num_bytes = 0;  // of the text; 0: nothing in the table begins it
    std::string_view replacement;
  };

  //   kInvalidArgument  sizes that do not add up, replacements that are not UTF-8 or not ended
  static absl::StatusOr<PrecompiledCharsmap> Parse(std::string_view blob);

  // The longest entry that `text` begins with. O(length of the longest entry); never reads outside
  // the table, whatever that holds.
  Match LongestPrefix(std::string_view text) const { return Prefix(text, /*longest=*/true); }
  // The shortest one.
  Match ShortestPrefix(std::string_view text) const { return Prefix(text, /*longest=*/false); }

  std::size_t longest_replacement() const;  // in bytes

 private:
  PrecompiledCharsmap() = default;
  Match Prefix(std::string_view text, bool longest) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace baton::text
