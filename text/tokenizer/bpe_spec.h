#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "text/tokenizer/byte_pair_merge.h"

namespace baton::text {

// A byte-pair vocabulary as files have it.
struct BpeSpec {
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank
  bool last_merge_wins = false;          // of merges of the same two tokens; else the first
  bool ignore_merges = false;            // a word that is a token is taken whole
  std::optional<std::string> unk_token;  // for what has no token; none: it vanishes
  bool fuse_unk = false;                 // neighbouring unknown symbols become one unk_token
  bool byte_fallback = false;  // an unknown character becomes its bytes' tokens, like "<0x0A>"
};

using TokenIds = absl::flat_hash_map<std::string, std::int32_t>;
TokenIds IdsBySpelling(const BpeSpec& spec);

// The id of spec.unk_token, or -1 where it names none. If it is no token: -1 where
// `covers_everything`, that is no text needs it.
//   kInvalidArgument  it is no token and a text may need it
absl::StatusOr<std::int32_t> UnkId(const BpeSpec& spec, const TokenIds& ids,
                                   bool covers_everything);

//   kInvalidArgument  a merge whose parts or result are no tokens; names it
absl::StatusOr<MergeTable> MakeMergeTable(const BpeSpec& spec, const TokenIds& ids);

}  // namespace baton::text
