#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton::text {

// A token matched in the text itself, before the model sees it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;   // matched after the normalizer, not on the raw text
  bool single_word = false;  // not where a word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
};

// Finds added tokens, leftmost first, then longest. Immutable and thread-safe after Build.
class AddedTokenMatcher {
 public:
  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t id = -1;  // -1: text between tokens
  };

  // `patterns[i]` is how tokens[i] is spelled in the text; empty ones are left out.
  void Build(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);

  bool empty() const { return tokens_.empty(); }

  // Cuts `text` (valid UTF-8) into tokens and what lies between. Special tokens count only with
  // `parse_special`. Time: O(length of text * length of the longest token).
  std::vector<Part> Find(std::string_view text, bool parse_special) const;

 private:
  struct Candidate {
    std::size_t num_bytes = 0;
    const AddedToken* token = nullptr;
  };
  Candidate LongestAt(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  // A trie: edges by node and byte, and the token that ends at a node, or -1.
  absl::flat_hash_map<std::uint64_t, std::uint32_t> edges_;
  std::vector<std::int32_t> token_at_node_;
  bool starts_token_[256] = {};
};

}  // namespace baton::text
