#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr double kUnknownPenalty = 10.0;
// Scratch memory above this many entries is given back after a word.
constexpr std::size_t kMaxKeptScratch = 1u << 16;

std::size_t CharacterBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0xC0) return 1;
  return byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

absl::Status CheckEntry(const UnigramSpec::Entry& entry, std::size_t place) {
  if (entry.id < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Unigram token number ", place, " has a negative id: ", entry.id));
  }
  if (!std::isfinite(entry.score)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Unigram token number ", place, " has a score that is not finite"));
  }
  if (!IsValidUtf8(entry.text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Unigram token number ", place, " is not valid UTF-8"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Unigram>> Unigram::Create(UnigramSpec spec) {
  if (spec.vocabulary.empty()) return absl::InvalidArgumentError("Unigram vocabulary is empty");
  if (spec.unk_id < 0) {
    return absl::FailedPreconditionError(
        "unsupported model: Unigram without unk_id; a text with an unknown character would have no "
        "ids");
  }
  auto model = std::unique_ptr<Unigram>(new Unigram());
  double min_score = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string_view, std::int32_t>> texts;
  texts.reserve(spec.vocabulary.size());
  for (std::size_t i = 0; i < spec.vocabulary.size(); ++i) {
    const UnigramSpec::Entry& entry = spec.vocabulary[i];
    if (absl::Status status = CheckEntry(entry, i); !status.ok()) return status;
    texts.emplace_back(entry.text, static_cast<std::int32_t>(i));
    model->entries_.push_back({entry.id, entry.score});
    min_score = std::min(min_score, entry.score);
  }
  model->trie_.Build(std::move(texts));
  model->unk_score_ = min_score - kUnknownPenalty;
  model->unk_id_ = spec.unk_id;
  model->byte_fallback_ = spec.byte_fallback;
  model->fuse_unk_ = spec.fuse_unk;
  if (spec.byte_ids) model->byte_ids_ = *spec.byte_ids;
  for (int byte = 0; byte < 256 && !spec.byte_ids; ++byte) {
    const std::int32_t entry = model->trie_.Find(absl::StrFormat("<0x%02X>", byte));
    model->byte_ids_[byte] = entry < 0 ? -1 : model->entries_[entry].id;
  }
  return model;
}

void Unigram::FindBest(std::string_view word, std::vector<Best>& best) const {
  constexpr double kUnreached = -std::numeric_limits<double>::infinity();
  best.assign(word.size() + 1, Best{kUnreached});
  best[0].score = 0.0;
  for (std::size_t begin = 0; begin < word.size();) {
    const double so_far = best[begin].score;
    const std::size_t first_bytes = CharacterBytes(word[begin]);
    bool first_is_token = false;
    const auto offer = [&](std::size_t end, double score, std::int32_t entry) {
      if (so_far + score > best[end].score) best[end] = {so_far + score, begin, entry};
    };
    trie_.ForEachPrefix(word.substr(begin), [&](std::size_t length, std::int32_t entry) {
      offer(begin + length, entries_[static_cast<std::size_t>(entry)].score, entry);
      first_is_token |= length == first_bytes;
    });
    if (!first_is_token) offer(begin + first_bytes, unk_score_, -1);
    begin += first_bytes;
  }
}

void Unigram::AppendUnknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (const std::int32_t entry = trie_.Find(text); entry >= 0) {
    ids.push_back(entries_[static_cast<std::size_t>(entry)].id);
    return;
  }
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ &&
      std::all_of(text.begin(), text.end(), [&](char byte) { return byte_id(byte) >= 0; })) {
    for (const char byte : text) ids.push_back(byte_id(byte));
    return;
  }
  ids.push_back(unk_id_);
}

void Unigram::Tokenize(std::string_view word, std::vector<std::int32_t>& ids) const {
  thread_local std::vector<Best> best;
  thread_local std::vector<std::size_t> ends;  // of the best segmentation's tokens, last first
  FindBest(word, best);
  ends.clear();
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) ends.push_back(end);
  while (!ends.empty()) {
    const std::size_t begin = best[ends.back()].begin;
    std::size_t end = ends.back();
    ends.pop_back();
    if (!IsUnknown(best[end])) {
      ids.push_back(entries_[static_cast<std::size_t>(best[end].entry)].id);
      continue;
    }
    while (fuse_unk_ && !ends.empty() && IsUnknown(best[ends.back()])) {
      end = ends.back();
      ends.pop_back();
    }
    AppendUnknown(word.substr(begin, end - begin), ids);
  }
  if (best.capacity() > kMaxKeptScratch) std::vector<Best>().swap(best);
  if (ends.capacity() > kMaxKeptScratch) std::vector<std::size_t>().swap(ends);
}

}  // namespace baton::text
