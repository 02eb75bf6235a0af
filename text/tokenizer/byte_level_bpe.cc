#include "text/tokenizer/byte_level_bpe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "text/tokenizer/byte_level.h"

namespace baton::text {

absl::StatusOr<std::unique_ptr<ByteLevelBpe>> ByteLevelBpe::Create(const ByteLevelBpeSpec& spec) {
  auto model = std::unique_ptr<ByteLevelBpe>(new ByteLevelBpe());
  absl::flat_hash_map<std::string, std::int32_t> id_of;  // by the spelling in the file
  id_of.reserve(spec.vocabulary.size());
  model->byte_ids_.fill(-1);
  for (const auto& [token, id] : spec.vocabulary) {
    id_of[token] = id;
    const std::optional<std::string> bytes = BytesFromAlphabet(token);
    if (!bytes || bytes->empty()) continue;  // spelled outside the alphabet: never the result
    if (bytes->size() == 1) model->byte_ids_[static_cast<unsigned char>((*bytes)[0])] = id;
    if (spec.ignore_merges) model->words_[*bytes] = id;
  }
  model->merges_.Reserve(spec.merges.size());
  std::int32_t rank = 0;
  for (const auto& [left, right] : spec.merges) {
    const auto left_id = id_of.find(left);
    const auto right_id = id_of.find(right);
    const auto merged_id = id_of.find(absl::StrCat(left, right));
    if (left_id == id_of.end() || right_id == id_of.end() || merged_id == id_of.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("BPE merge of tokens that the vocabulary lacks: number ", rank, ", \"", left,
                       "\" and \"", right, "\""));
    }
    model->merges_.Add(left_id->second, right_id->second, {rank, merged_id->second});
    ++rank;
  }
  if (spec.unk_token) {
    const auto unk_id = id_of.find(*spec.unk_token);
    if (unk_id == id_of.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unk_token is not in the vocabulary: \"", *spec.unk_token, "\""));
    }
    model->unk_id_ = unk_id->second;
  }
  model->fuse_unk_ = spec.fuse_unk;
  return model;
}

void ByteLevelBpe::Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (!words_.empty()) {
    const auto whole = words_.find(absl::string_view(word.data(), word.size()));
    if (whole != words_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  thread_local std::vector<std::int32_t> symbols;
  symbols.clear();
  bool after_unknown = false;
  for (const char byte : word) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id >= 0) {
      symbols.push_back(id);
    } else if (unk_id_ >= 0 && !(fuse_unk_ && after_unknown)) {
      symbols.push_back(unk_id_);
    }
    after_unknown = id < 0;
  }
  MergePairs(merges_, symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  if (symbols.capacity() > (1u << 20)) std::vector<std::int32_t>().swap(symbols);
}

}  // namespace baton::text
