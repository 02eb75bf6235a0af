#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/model.h"

namespace baton::text {

// A Unigram vocabulary. Entries that must not come out of plain text (control tokens) are left out
// by whoever fills it; of entries with equal text the last one counts.
struct UnigramSpec {
  struct Entry {
    std::string text;  // UTF-8
    std::int32_t id = 0;
    double score = 0.0;  // the logarithm of its probability
  };
  std::vector<Entry> vocabulary;
  std::int32_t unk_id = -1;    // for what no token spells; -1: the file names none
  bool byte_fallback = false;  // such text becomes its bytes' tokens "<0xNN>", if all are there
  bool fuse_unk = true;        // neighbours of this kind are taken as one
  // The byte tokens by byte, -1 for none. Not set: those of the vocabulary that are spelled so,
  // which then can match text as well (so in tokenizer.json).
  std::optional<std::array<std::int32_t, 256>> byte_ids;
};

// Finds the segmentation of the highest sum of scores: Kudo 2018 (arXiv:1804.10959), section 3.2,
// by Viterbi over a trie. A character that is no token costs 10 more than the lowest score. Of
// equal sums the longest last token wins, and so on towards the front. The rules, ties included,
// are those of Hugging Face's tokenizers.
class Unigram final : public TokenModel {
 public:
  //   kInvalidArgument     no tokens; a score that is not finite; an entry that is not UTF-8 or has
  //                        a negative id
  //   kFailedPrecondition  no unk_id: a text with a character that is no token would have no ids
  static absl::StatusOr<std::unique_ptr<Unigram>> Create(UnigramSpec spec);

  // `word` is valid UTF-8. Time: O(length * length of the longest token); memory: O(length).
  void Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  struct Scored {
    std::int32_t id = 0;
    double score = 0.0;
  };
  // The best segmentation that ends at a byte offset.
  struct Best {
    double score = 0.0;
    std::size_t begin = 0;    // of its last token
    std::int32_t entry = -1;  // that token, or -1: an unknown character
  };

  Unigram() = default;
  void FindBest(std::string_view word, std::vector<Best>& best) const;
  bool IsUnknown(const Best& last) const {
    return last.entry < 0 || entries_[static_cast<std::size_t>(last.entry)].id == unk_id_;
  }
  void AppendUnknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  ByteTrie trie_;  // values index entries_
  std::vector<Scored> entries_;
  std::array<std::int32_t, 256> byte_ids_;  // -1: no token
  double unk_score_ = 0.0;
  std::int32_t unk_id_ = 0;
  bool byte_fallback_ = false;
  bool fuse_unk_ = true;
};

}  // namespace baton::text
