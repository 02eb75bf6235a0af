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
#include "text/tokenizer/word_cache.h"

namespace baton::text {

// Byte-pair encoding over bytes (Radford et al. 2019, GPT-2): of words as they are, with a
// vocabulary spelled in the byte alphabet.
class ByteLevelBpe final : public TokenModel {
 public:
  // `spec` has no byte_fallback: with an alphabet of bytes there is nothing to fall back from.
  //   kInvalidArgument  a merge whose parts or result are no tokens; names it
  static absl::StatusOr<std::unique_ptr<ByteLevelBpe>> Create(const BpeSpec& spec);

  void Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const override;

  const MergeTable& merges() const { return merges_; }

 private:
  ByteLevelBpe() = default;
  void TokenizeNew(std::string_view word, std::vector<std::int32_t>& ids) const;

  absl::flat_hash_map<std::string, std::int32_t> words_;  // filled only with ignore_merges
  std::array<std::int32_t, 256> byte_ids_;                // -1 for a byte without a token
  MergeTable merges_;
  const std::uint32_t cache_owner_ = WordCache::NewOwner();
  std::int32_t unk_id_ = -1;
  bool fuse_unk_ = false;
};

}  // namespace baton::text
