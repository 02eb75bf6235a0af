#include "text/tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Damaged(std::size_t place, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("token number ", place, " ", Absl(what)));
}

// Calls `visit(offset, unit)` for each character of valid UTF-8.
template <class Visit>
void ForEachCharacter(std::string_view text, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = ReadUtf8Unit(text.substr(at));
    visit(at, unit);
    at += unit.num_bytes;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SentencePieceBpe>> SentencePieceBpe::Create(
    SentencePieceBpeSpec spec) {
  auto model = std::unique_ptr<SentencePieceBpe>(new SentencePieceBpe());
  if (spec.pieces.empty()) return absl::InvalidArgumentError("BPE vocabulary is empty");
  const bool all_bytes = std::all_of(spec.byte_ids.begin(), spec.byte_ids.end(),
                                     [](std::int32_t id) { return id >= 0; });
  if (spec.unk_id < 0 && !all_bytes) {
    return absl::FailedPreconditionError(
        "unsupported BPE vocabulary: neither an unknown token nor a token for each byte, so that "
        "some text would have no ids");
  }
  model->byte_ids_ = spec.byte_ids;
  model->unk_id_ = spec.unk_id;
  model->fuse_unk_ = spec.fuse_unk;
  BATON_RETURN_IF_ERROR(model->AddPieces(spec));
  BATON_RETURN_IF_ERROR(model->AddUserDefined(spec));
  model->AddCharacters();
  model->AddMerges(spec);
  return model;
}

absl::Status SentencePieceBpe::AddPieces(const SentencePieceBpeSpec& spec) {
  texts_.reserve(spec.pieces.size());  // views into it must stay
  symbol_of_text_.reserve(spec.pieces.size());
  for (const SentencePieceBpeSpec::Piece& piece : spec.pieces) {
    const std::size_t place = texts_.size();
    if (piece.text.empty()) return Damaged(place, "is empty");
    if (!IsValidUtf8(piece.text)) return Damaged(place, "is not valid UTF-8");
    if (piece.id < 0) return Damaged(place, "has a negative id");
    if (!std::isfinite(piece.score)) return Damaged(place, "has a score that is not finite");
    texts_.push_back(piece.text);
    if (!symbol_of_text_.try_emplace(texts_.back(), static_cast<std::int32_t>(place)).second) {
      return Damaged(place, absl::StrCat("has the text of another one: \"", piece.text, "\""));
    }
    symbols_.push_back({piece.id, static_cast<std::uint32_t>(piece.text.size()), piece.unused});
  }
  return absl::OkStatus();
}

absl::Status SentencePieceBpe::AddUserDefined(const SentencePieceBpeSpec& spec) {
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  for (const SentencePieceBpeSpec::Piece& piece : spec.user_defined) {
    if (!IsValidUtf8(piece.text) || piece.id < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "user-defined token is not valid UTF-8 or has a negative id: number ", entries.size()));
    }
    entries.emplace_back(piece.text, piece.id);
  }
  user_defined_.Build(std::move(entries));
  return absl::OkStatus();
}

void SentencePieceBpe::AddCharacters() {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    cuts_.AddToken(texts_[i]);
    const Utf8Unit first = ReadUtf8Unit(texts_[i]);
    if (first.num_bytes == texts_[i].size()) {
      symbol_of_character_[first.code_point] = static_cast<std::int32_t>(i);
    }
  }
  for (const std::string& text : texts_) {
    ForEachCharacter(text, [&](std::size_t, const Utf8Unit& unit) {
      const auto symbol = static_cast<std::int32_t>(symbols_.size());
      if (symbol_of_character_.try_emplace(unit.code_point, symbol).second) {
        symbols_.push_back({-1, static_cast<std::uint32_t>(unit.num_bytes), false});
      }
    });
  }
  other_ = static_cast<std::int32_t>(symbols_.size());
  symbols_.push_back({});
}

std::int32_t SentencePieceBpe::FindText(std::string_view text) const {
  const auto whole = symbol_of_text_.find(text);
  if (whole != symbol_of_text_.end()) return whole->second;
  const Utf8Unit first = ReadUtf8Unit(text);
  if (first.num_bytes != text.size()) return -1;
  const auto character = symbol_of_character_.find(first.code_point);
  return character == symbol_of_character_.end() ? -1 : character->second;
}

void SentencePieceBpe::AddMerges(const SentencePieceBpeSpec& spec) {
  // Equal scores share a rank: among those the leftmost pair goes first.
  std::vector<float> scores;
  scores.reserve(spec.pieces.size());
  for (const SentencePieceBpeSpec::Piece& piece : spec.pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  merges_.Reserve(2 * spec.pieces.size());
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const std::string_view text = texts_[i];
    const auto rank = static_cast<std::int32_t>(
        std::lower_bound(scores.begin(), scores.end(), spec.pieces[i].score, std::greater<>()) -
        scores.begin());
    ForEachCharacter(text, [&](std::size_t at, const Utf8Unit&) {
      if (at == 0) return;
      const std::int32_t left = FindText(text.substr(0, at));
      const std::int32_t right = left < 0 ? -1 : FindText(text.substr(at));
      if (right < 0) return;
      merges_.Add(left, right, {rank, static_cast<std::int32_t>(i)});
      splits_unused_ |= spec.pieces[i].unused;
    });
  }
}

void SentencePieceBpe::Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < word.size() && !user_defined_.empty();) {
    std::size_t length = 0;
    std::int32_t id = -1;
    user_defined_.ForEachPrefix(word.substr(at), [&](std::size_t num_bytes, std::int32_t value) {
      length = num_bytes;
      id = value;
    });
    if (length == 0) {
      at += ReadUtf8Unit(word.substr(at)).num_bytes;
      continue;
    }
    TokenizeMerged(word.substr(done, at - done), ids);
    ids.push_back(id);
    done = at += length;
  }
  TokenizeMerged(word.substr(done), ids);
}

void SentencePieceBpe::TokenizeMerged(std::string_view text, std::vector<std::int32_t>& ids) const {
  // How an unused piece is split depends on the whole text, so that one is not cut.
  if (splits_unused_) {
    TokenizeCut(text, ids);
    return;
  }
  WordCache& cache = WordCache::OfThisThread();
  while (!text.empty()) {
    const std::size_t cut = cuts_.FindCut(text);
    cache.Append(
        cache_owner_, text.substr(0, cut), ids,
        [this](std::string_view word, std::vector<std::int32_t>& out) { TokenizeCut(word, out); });
    text.remove_prefix(cut);
  }
}

void SentencePieceBpe::TokenizeCut(std::string_view text, std::vector<std::int32_t>& ids) const {
  constexpr std::size_t kMaxKept = 1u << 16;
  thread_local std::vector<std::int32_t> symbols;
  symbols.clear();
  ForEachCharacter(text, [&](std::size_t, const Utf8Unit& unit) {
    const auto found = symbol_of_character_.find(unit.code_point);
    symbols.push_back(found == symbol_of_character_.end() ? other_ : found->second);
  });
  Splits splits;
  if (splits_unused_) {
    const MergeObserver observer = [&](std::int32_t left, std::int32_t right,
                                       const PairMerge& merge) {
      if (symbols_[static_cast<std::size_t>(merge.id)].unused) splits[merge.id] = {left, right};
    };
    MergePairs(merges_, symbols, nullptr, &observer);
  } else {
    MergePairs(merges_, symbols);
  }
  Append(symbols, splits, text, ids);
  if (symbols.capacity() > kMaxKept) std::vector<std::int32_t>().swap(symbols);
}

void SentencePieceBpe::Append(const std::vector<std::int32_t>& symbols, const Splits& splits,
                              std::string_view text, std::vector<std::int32_t>& ids) const {
  bool after_unknown = false;
  std::vector<std::int32_t> parts;
  for (const std::int32_t symbol : symbols) {
    parts.assign(1, symbol);
    while (!parts.empty()) {
      const std::int32_t part = parts.back();
      parts.pop_back();
      const auto split = splits.find(part);
      if (split == splits.end()) {
        AppendSymbol(symbols_[static_cast<std::size_t>(part)], text, after_unknown, ids);
      } else {  // the two are shorter, so this ends
        parts.push_back(split->second.second);
        parts.push_back(split->second.first);
      }
    }
  }
}

void SentencePieceBpe::AppendSymbol(const Symbol& symbol, std::string_view& text,
                                    bool& after_unknown, std::vector<std::int32_t>& ids) const {
  const std::size_t num_bytes =
      symbol.num_bytes > 0 ? symbol.num_bytes : ReadUtf8Unit(text).num_bytes;
  const std::string_view spelled = text.substr(0, num_bytes);
  text.remove_prefix(num_bytes);
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  bool is_unknown = false;
  if (symbol.id >= 0) {
    ids.push_back(symbol.id);
  } else if (std::all_of(spelled.begin(), spelled.end(),
                         [&](char byte) { return byte_id(byte) >= 0; })) {
    for (const char byte : spelled) ids.push_back(byte_id(byte));
  } else {
    is_unknown = true;
    if (!fuse_unk_ || !after_unknown) ids.push_back(unk_id_);
  }
  after_unknown = is_unknown;
}

}  // namespace baton::text
