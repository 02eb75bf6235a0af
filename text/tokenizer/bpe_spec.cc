#include "text/tokenizer/bpe_spec.h"

#include "absl/strings/str_cat.h"

namespace baton::text {

TokenIds IdsBySpelling(const BpeSpec& spec) {
  TokenIds ids;
  ids.reserve(spec.vocabulary.size());
  for (const auto& [token, id] : spec.vocabulary) ids[token] = id;
  return ids;
}

absl::StatusOr<std::int32_t> UnkId(const BpeSpec& spec, const TokenIds& ids,
                                   bool covers_everything) {
  if (!spec.unk_token) return -1;
  const auto found = ids.find(*spec.unk_token);
  if (found != ids.end()) return found->second;
  if (covers_everything) return -1;
  return absl::InvalidArgumentError(
      absl::StrCat("unk_token is not in the vocabulary: \"", *spec.unk_token, "\""));
}

absl::StatusOr<MergeTable> MakeMergeTable(const BpeSpec& spec, const TokenIds& ids) {
  MergeTable table;
  table.Reserve(spec.merges.size());
  const std::size_t count = spec.merges.size();
  std::string joined;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t rank = spec.last_merge_wins ? count - 1 - i : i;
    const auto& [left, right] = spec.merges[rank];
    joined.assign(left).append(right);
    const auto left_id = ids.find(left);
    const auto right_id = ids.find(right);
    const auto merged_id = ids.find(joined);
    if (left_id == ids.end() || right_id == ids.end() || merged_id == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("BPE merge of tokens that the vocabulary lacks: number ", rank, ", \"", left,
                       "\" and \"", right, "\""));
    }
    table.Add(left_id->second, right_id->second,
              {static_cast<std::int32_t>(rank), merged_id->second});
  }
  return table;
}

}  // namespace baton::text
