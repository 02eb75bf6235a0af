#include "text/tokenizer/character_bpe.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/status.h"
#include "text/utf8.h"

namespace baton::text {

absl::StatusOr<std::unique_ptr<CharacterBpe>> CharacterBpe::Create(const BpeSpec& spec) {
  auto model = std::unique_ptr<CharacterBpe>(new CharacterBpe());
  TokenIds ids = IdsBySpelling(spec);
  model->ascii_ids_.fill(-1);
  for (const auto& [token, id] : ids) {
    if (token.empty()) continue;
    model->cuts_.AddToken(token);
    model->may_cut_ |= token == kSpaceMark;
    const Utf8Unit unit = ReadUtf8Unit(token);
    if (unit.kind != Utf8Unit::Kind::kCharacter || unit.num_bytes != token.size()) continue;
    if (unit.code_point < model->ascii_ids_.size()) {
      model->ascii_ids_[unit.code_point] = id;
    } else {
      model->character_ids_[unit.code_point] = id;
    }
  }
  model->byte_ids_.fill(-1);
  model->byte_fallback_ = spec.byte_fallback;
  for (std::size_t byte = 0; byte < model->byte_ids_.size() && spec.byte_fallback; ++byte) {
    const auto found = ids.find(absl::StrFormat("<0x%02X>", byte));
    if (found != ids.end()) model->byte_ids_[byte] = found->second;
  }
  const bool covers_everything =
      std::find(model->byte_ids_.begin(), model->byte_ids_.end(), -1) == model->byte_ids_.end();
  BATON_ASSIGN_OR_RETURN(model->unk_id_, UnkId(spec, ids, covers_everything));
  BATON_ASSIGN_OR_RETURN(model->merges_, MakeMergeTable(spec, ids));
  model->fuse_unk_ = spec.fuse_unk;
  if (spec.ignore_merges) model->words_ = std::move(ids);
  return model;
}

std::int32_t CharacterBpe::IdOf(char32_t character) const {
  if (character < ascii_ids_.size()) return ascii_ids_[character];
  const auto found = character_ids_.find(character);
  return found == character_ids_.end() ? -1 : found->second;
}

// All bytes or none.
bool CharacterBpe::AppendBytes(std::string_view character,
                               std::vector<std::int32_t>& symbols) const {
  if (!byte_fallback_) return false;
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return id_of(c) < 0; })) {
    return false;
  }
  for (const char byte : character) symbols.push_back(id_of(byte));
  return true;
}

void CharacterBpe::AppendSymbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  // An unknown token comes out when the next known character does, as in the reference: bytes of
  // the fallback overtake it.
  bool unknown_waits = false;
  while (!word.empty()) {
    const Utf8Unit unit = ReadUtf8Unit(word);
    const std::string_view character = word.substr(0, unit.num_bytes);
    word.remove_prefix(unit.num_bytes);
    const std::int32_t id = IdOf(unit.code_point);
    if (id < 0 && AppendBytes(character, symbols)) continue;
    if (unknown_waits && (id >= 0 || !fuse_unk_)) {
      symbols.push_back(unk_id_);
      unknown_waits = false;
    }
    if (id >= 0) {
      symbols.push_back(id);
    } else {
      unknown_waits = unk_id_ >= 0;
    }
  }
  if (unknown_waits) symbols.push_back(unk_id_);
}

void CharacterBpe::Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (!words_.empty()) {
    const auto whole = words_.find(absl::string_view(word.data(), word.size()));
    if (whole != words_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  WordCache& cache = WordCache::OfThisThread();
  while (!word.empty()) {
    const std::size_t cut = may_cut_ ? cuts_.FindCut(word) : word.size();
    cache.Append(
        cache_owner_, word.substr(0, cut), ids,
        [this](std::string_view text, std::vector<std::int32_t>& out) { TokenizeCut(text, out); });
    word.remove_prefix(cut);
  }
}

void CharacterBpe::TokenizeCut(std::string_view word, std::vector<std::int32_t>& ids) const {
  thread_local std::vector<std::int32_t> symbols;
  symbols.clear();
  AppendSymbols(word, symbols);
  MergePairs(merges_, symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  if (symbols.capacity() > (1u << 20)) std::vector<std::int32_t>().swap(symbols);
}

}  // namespace baton::text
