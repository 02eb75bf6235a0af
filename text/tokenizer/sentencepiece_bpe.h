#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "text/tokenizer/byte_pair_merge.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/space_mark_cuts.h"
#include "text/tokenizer/word_cache.h"

namespace baton::text {

// A byte-pair vocabulary over characters, as SentencePiece has it. Tokens that must not come out of
// text (control, unknown and byte ones) are left out.
struct SentencePieceBpeSpec {
  struct Piece {
    std::string text;  // UTF-8
    std::int32_t id = 0;
    float score = 0.0F;   // the pair that makes the piece of the highest score merges first
    bool unused = false;  // takes part in merging, but is written as the two it was made of
  };
  std::vector<Piece> pieces;
  std::vector<Piece> user_defined;  // found first, the leftmost and longest; merge with nothing
  std::array<std::int32_t, 256> byte_ids = MakeNoBytes();  // "<0xNN>" by byte, -1: none
  std::int32_t unk_id = -1;  // for a character with neither a piece nor all its bytes; -1: none
  bool fuse_unk = true;      // neighbouring characters of this kind become one token

  static std::array<std::int32_t, 256> MakeNoBytes() {
    std::array<std::int32_t, 256> ids;
    ids.fill(-1);
    return ids;
  }
};

// SentencePiece's byte-pair encoding (Kudo and Richardson 2018, arXiv:1808.06226; model_type BPE):
// any two neighbours that make a piece may merge, the highest score first and the leftmost of
// equals; what is no piece in the end becomes its bytes, or unknown.
class SentencePieceBpe final : public TokenModel {
 public:
  //   kInvalidArgument     no pieces, the same one twice, an empty one, one that is not UTF-8 or
  //   has
  //                        a negative id; a score that is not finite; a merge of what is no piece
  //   kFailedPrecondition  neither unk_id nor all byte ids: some text would have no ids
  static absl::StatusOr<std::unique_ptr<SentencePieceBpe>> Create(SentencePieceBpeSpec spec);

  // `word` is valid UTF-8 and may be a whole text: it is cut before each space mark that no piece
  // holds behind the character there. O(n log n).
  void Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  // What symbols are while merging: first the pieces, in the spec's order, then characters that are
  // no piece but part of some, last the one symbol for all other characters.
  struct Symbol {
    std::int32_t id = -1;         // -1: not a token
    std::uint32_t num_bytes = 0;  // of its text; 0: to be read off the text
    bool unused = false;
  };
  // The two that an unused piece was last made of.
  using Splits = absl::flat_hash_map<std::int32_t, std::pair<std::int32_t, std::int32_t>>;
  using Texts = absl::flat_hash_map<std::string_view, std::int32_t>;

  SentencePieceBpe() = default;
  absl::Status AddPieces(const SentencePieceBpeSpec& spec);
  absl::Status AddUserDefined(const SentencePieceBpeSpec& spec);
  void AddCharacters();
  void AddMerges(const SentencePieceBpeSpec& spec);
  std::int32_t FindText(std::string_view text) const;
  void TokenizeMerged(std::string_view text, std::vector<std::int32_t>& ids) const;
  void TokenizeCut(std::string_view text, std::vector<std::int32_t>& ids) const;
  void Append(const std::vector<std::int32_t>& symbols, const Splits& splits, std::string_view text,
              std::vector<std::int32_t>& ids) const;
  // Writes the symbol that `text` begins with, and takes it off.
  void AppendSymbol(const Symbol& symbol, std::string_view& text, bool& after_unknown,
                    std::vector<std::int32_t>& ids) const;

  std::vector<std::string> texts_;
  Texts symbol_of_text_;  // views into texts_
  absl::flat_hash_map<char32_t, std::int32_t> symbol_of_character_;
  std::vector<Symbol> symbols_;
  MergeTable merges_;
  SpaceMarkCuts cuts_;
  const std::uint32_t cache_owner_ = WordCache::NewOwner();
  ByteTrie user_defined_;  // ids by text
  std::array<std::int32_t, 256> byte_ids_;
  std::int32_t unk_id_ = -1;
  std::int32_t other_ = 0;  // the symbol for all other characters
  bool fuse_unk_ = true;
  bool splits_unused_ = false;  // some merge makes an unused piece
};

}  // namespace baton::text
