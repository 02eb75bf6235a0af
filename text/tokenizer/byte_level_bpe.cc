#include "text/tokenizer/byte_level_bpe.h"

#include <optional>

#include "absl/strings/string_view.h"
#include "common/status.h"
#include "text/tokenizer/byte_level.h"

namespace baton::text {

absl::StatusOr<std::unique_ptr<ByteLevelBpe>> ByteLevelBpe::Create(const BpeSpec& spec) {
  auto model = std::unique_ptr<ByteLevelBpe>(new ByteLevelBpe());
  const TokenIds ids = IdsBySpelling(spec);
  model->byte_ids_.fill(-1);
  for (const auto& [token, id] : ids) {
    const std::optional<std::string> bytes = BytesFromAlphabet(token);
    if (!bytes || bytes->empty()) continue;  // spelled outside the alphabet: never the result
    if (bytes->size() == 1) model->byte_ids_[static_cast<unsigned char>((*bytes)[0])] = id;
    if (spec.ignore_merges) model->words_[*bytes] = id;
  }
  BATON_ASSIGN_OR_RETURN(model->merges_, MakeMergeTable(spec, ids));
  // The bytes that UTF-8 never has need no token.
  bool covers_everything = true;
  for (int byte = 0; byte < 256; ++byte) {
    const bool occurs = byte != 0xC0 && byte != 0xC1 && byte <= 0xF4;
    covers_everything &= !occurs || model->byte_ids_[byte] >= 0;
  }
  BATON_ASSIGN_OR_RETURN(model->unk_id_, UnkId(spec, ids, covers_everything));
  model->fuse_unk_ = spec.fuse_unk;
  return model;
}

void ByteLevelBpe::Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const {
  WordCache::OfThisThread().Append(
      cache_owner_, word, ids,
      [this](std::string_view text, std::vector<std::int32_t>& out) { TokenizeNew(text, out); });
}

void ByteLevelBpe::TokenizeNew(std::string_view word, std::vector<std::int32_t>& ids) const {
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
