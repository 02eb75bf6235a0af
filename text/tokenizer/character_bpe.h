#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "text/tokenizer/bpe_spec.h"
#include "text/tokenizer/byte_pair_merge.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/space_mark_cuts.h"
#include "text/tokenizer/word_cache.h"

namespace baton::text {

// Byte-pair encoding over characters (Sennrich et al. 2016, arXiv:1508.07909), with the byte
// fallback of SentencePiece. A word may be a whole text: O(n log n).
class CharacterBpe final : public TokenModel {
 public:
  //   kInvalidArgument  a merge whose parts or result are no tokens, an unk_token that is none
  static absl::StatusOr<std::unique_ptr<CharacterBpe>> Create(const BpeSpec& spec);

  void Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const override;

 private:
  CharacterBpe() = default;
  std::int32_t IdOf(char32_t character) const;
  bool AppendBytes(std::string_view character, std::vector<std::int32_t>& symbols) const;
  void AppendSymbols(std::string_view word, std::vector<std::int32_t>& symbols) const;
  void TokenizeCut(std::string_view word, std::vector<std::int32_t>& ids) const;

  absl::flat_hash_map<std::string, std::int32_t> words_;       // filled only with ignore_merges
  std::array<std::int32_t, 128> ascii_ids_;                    // -1: no token
  absl::flat_hash_map<char32_t, std::int32_t> character_ids_;  // beyond ASCII
  std::array<std::int32_t, 256> byte_ids_;  // of "<0x00>" to "<0xFF>"; -1: no token
  MergeTable merges_;
  SpaceMarkCuts cuts_;
  bool may_cut_ = false;  // the space mark is a token, so that nothing unknown reaches across it
  const std::uint32_t cache_owner_ = WordCache::NewOwner();
  std::int32_t unk_id_ = -1;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
};

}  // namespace baton::text
