#include "text/tokenizer/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/character_classes.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

// The characters that the reference's tables know, those of Unicode 9: later ones stay as they are.
const icu::UnicodeSet& KnownCharacters() {
  static const icu::UnicodeSet* known = [] {
    UErrorCode error = U_ZERO_ERROR;
    auto* set = new icu::UnicodeSet(u"[:Age=9.0:]", error);
    set->freeze();
    return set;
  }();
  return *known;
}

class UnicodeNormalizer final : public Normalizer {
 public:
  // `first_lead`: text whose bytes are all lower stays as it is.
  UnicodeNormalizer(const icu::Normalizer2& form, unsigned char first_lead)
      : form_(form, KnownCharacters()), first_lead_(first_lead) {}

  std::string Normalize(std::string_view text, bool&) const override {
    const bool is_plain = std::all_of(text.begin(), text.end(), [&](char c) {
      return static_cast<unsigned char>(c) < first_lead_;
    });
    if (is_plain) return std::string(text);
    const icu::StringPiece piece(text.data(), static_cast<std::int32_t>(text.size()));
    UErrorCode error = U_ZERO_ERROR;
    std::string out;
    icu::StringByteSink<std::string> sink(&out, piece.length());
    form_.normalizeUTF8(0, piece, sink, nullptr, error);
    return U_SUCCESS(error) ? out : std::string(text);
  }

 private:
  const icu::FilteredNormalizer2 form_;
  const unsigned char first_lead_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::string Normalize(std::string_view text, bool& keeps_front) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    ForEachPart(*pattern_, text, [&](std::size_t begin, std::size_t end, bool is_match) {
      if (!is_match) {
        out += text.substr(begin, end - begin);
        return;
      }
      // What replaces a single character stands for it; what replaces more stands for the last.
      if (begin == 0 && end > 0 && (content_.empty() || end > NextCharacter(text, 0))) {
        keeps_front = false;
      }
      out += content_;
    });
    return out;
  }

 private:
  const std::unique_ptr<Pattern> pattern_;
  const std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  std::string Normalize(std::string_view text, bool&) const override {
    std::string out;
    if (text.empty()) return out;
    out.reserve(prefix_.size() + text.size());
    out += prefix_;
    out += text;
    return out;
  }

 private:
  const std::string prefix_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  std::string Normalize(std::string_view text, bool& keeps_front) const override {
    std::size_t first_kept = std::string_view::npos;
    std::size_t end = 0;  // of the last character that is no white space
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Unit unit = ReadUtf8Unit(text.substr(at));
      if (!IsWhiteSpace(unit.code_point)) {
        if (first_kept == std::string_view::npos) first_kept = at;
        end = at + unit.num_bytes;
      }
      at += unit.num_bytes;
    }
    if (first_kept == std::string_view::npos) first_kept = text.size();
    const std::size_t begin = left_ ? first_kept : 0;
    if (!right_) end = text.size();
    if (begin > 0) keeps_front = false;
    return std::string(text.substr(begin, end > begin ? end - begin : 0));
  }

 private:
  const bool left_;
  const bool right_;
};

constexpr char32_t kDropped = 0x110000;

// Maps each character to another or to kDropped.
class MapCharacters final : public Normalizer {
 public:
  explicit MapCharacters(char32_t (*map)(char32_t)) : map_(map) {}

  std::string Normalize(std::string_view text, bool& keeps_front) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Unit unit = ReadUtf8Unit(text.substr(at));
      const char32_t mapped = map_(unit.code_point);
      if (mapped != kDropped) AppendUtf8(mapped, out);
      if (mapped == kDropped && at == 0) keeps_front = false;
      at += unit.num_bytes;
    }
    return out;
  }

 private:
  char32_t (*const map_)(char32_t);
};

char32_t DropMark(char32_t c) { return IsMark(c) ? kDropped : c; }

// The lists are those of SentencePiece's nmt rules as Hugging Face's tokenizers have them.
char32_t MapNmt(char32_t c) {
  if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return kDropped;
  }
  if (c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
      c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD) {
    return ' ';
  }
  return c;
}

class Lowercase final : public Normalizer {
 public:
  std::string Normalize(std::string_view text, bool&) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Unit unit = ReadUtf8Unit(text.substr(at));
      if (unit.code_point == 0x130) {
        out += "i\u0307";  // the one character whose lower case is two, in any context
      } else {
        AppendUtf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(unit.code_point))), out);
      }
      at += unit.num_bytes;
    }
    return out;
  }
};

class ByteAlphabetNormalizer final : public Normalizer {
 public:
  std::string Normalize(std::string_view text, bool&) const override {
    return AlphabetFromBytes(text);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> MakeUnicodeNormalizer(std::string_view form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* instance = nullptr;
  if (form == "NFC") instance = icu::Normalizer2::getNFCInstance(error);
  if (form == "NFD") instance = icu::Normalizer2::getNFDInstance(error);
  if (form == "NFKC") instance = icu::Normalizer2::getNFKCInstance(error);
  if (form == "NFKD") instance = icu::Normalizer2::getNFKDInstance(error);
  if (U_FAILURE(error)) return absl::InternalError("ICU has no normalization data");
  if (instance == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("unsupported normalizer: ", absl::string_view(form.data(), form.size())));
  }
  // NFC leaves alone what comes before U+0300, which begins with 0xCC; the others, ASCII.
  return std::make_unique<UnicodeNormalizer>(*instance, form == "NFC" ? 0xCC : 0x80);
}

std::unique_ptr<Normalizer> MakeReplace(std::unique_ptr<Pattern> pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> MakePrepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
std::unique_ptr<Normalizer> MakeStrip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}
std::unique_ptr<Normalizer> MakeLowercase() { return std::make_unique<Lowercase>(); }
std::unique_ptr<Normalizer> MakeStripAccents() { return std::make_unique<MapCharacters>(DropMark); }
std::unique_ptr<Normalizer> MakeNmt() { return std::make_unique<MapCharacters>(MapNmt); }
std::unique_ptr<Normalizer> MakeByteAlphabetNormalizer() {
  return std::make_unique<ByteAlphabetNormalizer>();
}

}  // namespace baton::text
