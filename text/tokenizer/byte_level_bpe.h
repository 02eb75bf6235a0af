#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "text/tokenizer/byte_pair_merge.h"
#include "text/tokenizer/model.h"

namespace baton::text {

// A byte-level BPE vocabulary as files have it, spelled in the byte alphabet.
struct ByteLevelBpeSpec {
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank
  bool ignore_merges = false;                               // a word that is a token is taken whole
  std::optional<std::string> unk_token;  // for bytes without a token; none: they vanish
  bool fuse_unk = false;                 // neighbouring unknown bytes become one unk_token
};

// Byte-pair encoding over bytes (Radford et al. 2019, GPT-2).
class ByteLevelBpe final : public TokenModel {
 public:
  // kInvalidArgument  a merge whose parts or result are no tokens; names it
  static absl::StatusOr<std::unique_ptr<ByteLevelBpe>> Create(const ByteLevelBpeSpec& spec);

  void Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const override;

  const MergeTable& merges() const { return merges_; }

 private:
  ByteLevelBpe() = default;

  absl::flat_hash_map<std::string, std::int32_t> words_;  // filled only with ignore_merges
  std::array<std::int32_t, 256> byte_ids_;                // -1 for a byte without a token
  MergeTable merges_;
  std::int32_t unk_id_ = -1;
  bool fuse_unk_ = false;
};

}  // namespace baton::text
