#include "text/tokenizer/sentencepiece_normalizer.h"

#include <utility>

#include "text/tokenizer/space_mark_cuts.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

class SentencePieceNormalizer final : public Normalizer {
 public:
  explicit SentencePieceNormalizer(SentencePieceNormalization options)
      : options_(std::move(options)) {}

  std::string Normalize(std::string_view text, bool&) const override {
    const bool remove_extra = options_.remove_extra_whitespaces;
    std::string out;
    out.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
    if (remove_extra) SkipSpaces(text);
    if (text.empty()) return out;
    if (options_.add_space_prefix) out += kSpaceMark;
    bool after_space = remove_extra;
    while (!text.empty()) {
      std::string_view piece = TakePiece(text);
      while (after_space && !piece.empty() && piece.front() == ' ') piece.remove_prefix(1);
      if (piece.empty()) continue;
      for (const char c : piece) {
        if (c == ' ') {
          out += kSpaceMark;
        } else {
          out += c;
        }
      }
      after_space = remove_extra && piece.back() == ' ';
    }
    while (remove_extra && out.ends_with(kSpaceMark)) out.resize(out.size() - kSpaceMark.size());
    return out;
  }

 private:
  // Takes the next characters off and returns what they become.
  std::string_view TakePiece(std::string_view& text) const {
    if (options_.charsmap) {
      const PrecompiledCharsmap::Match match = options_.charsmap->LongestPrefix(text);
      if (match.num_bytes > 0) {
        text.remove_prefix(match.num_bytes);
        return match.replacement;
      }
    }
    const std::string_view character = text.substr(0, ReadUtf8Unit(text).num_bytes);
    text.remove_prefix(character.size());
    return character;
  }

  void SkipSpaces(std::string_view& text) const {
    while (!text.empty()) {
      std::string_view rest = text;
      if (TakePiece(rest) != " ") break;
      text = rest;
    }
  }

  const SentencePieceNormalization options_;
};

}  // namespace

std::unique_ptr<Normalizer> MakeSentencePieceNormalizer(SentencePieceNormalization options) {
  return std::make_unique<SentencePieceNormalizer>(std::move(options));
}

}  // namespace baton::text
