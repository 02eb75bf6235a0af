#include "text/tokenizer/word_scanner.h"

#include <unicode/uchar.h>

#include <array>
#include <cstdint>

namespace baton::text {
namespace {

// Classes of characters, as bits.
enum : std::uint8_t {
  kLetter = 1,    // \p{L}
  kNumber = 2,    // \p{N}
  kSpace = 4,     // \s
  kNewline = 8,   // [\r\n]
  kMark = 16,     // \p{M}
  kSymbol = 32,   // [\p{P}\p{S}]
  kCapital = 64,  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kSmall = 128,   // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
};

std::uint8_t Classify(char32_t c) {
  const std::uint32_t category = U_GET_GC_MASK(static_cast<UChar32>(c));
  std::uint8_t bits = 0;
  if ((category & U_GC_L_MASK) != 0) bits |= kLetter;
  if ((category & U_GC_N_MASK) != 0) bits |= kNumber;
  if (u_isUWhiteSpace(static_cast<UChar32>(c)) != 0) bits |= kSpace;
  if (c == '\r' || c == '\n') bits |= kNewline;
  if ((category & U_GC_M_MASK) != 0) bits |= kMark;
  if ((category & (U_GC_P_MASK | U_GC_S_MASK)) != 0) bits |= kSymbol;
  const std::uint32_t both = U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK;
  if ((category & (U_GC_LU_MASK | U_GC_LT_MASK | both)) != 0) bits |= kCapital;
  if ((category & (U_GC_LL_MASK | both)) != 0) bits |= kSmall;
  return bits;
}

using ClassTable = std::array<std::uint8_t, 0x10000>;

const ClassTable& TheClasses() {
  static const ClassTable* const table = [] {
    auto* made = new ClassTable;
    for (char32_t c = 0; c < made->size(); ++c) (*made)[c] = Classify(c);
    return made;
  }();
  return *table;
}

struct Character {
  char32_t code_point;
  std::uint8_t num_bytes;
  std::uint8_t bits;
};

// A text with classes looked up. `at` is always at the front of a character or the text's end.
class Scanned {
 public:
  explicit Scanned(std::string_view text) : text_(text), classes_(TheClasses()) {}

  std::size_t size() const { return text_.size(); }

  Character At(std::size_t at) const {
    const auto byte = [&](std::size_t i) -> char32_t {
      return static_cast<unsigned char>(text_[at + i]);
    };
    const char32_t first = byte(0);
    if (first < 0x80) return {first, 1, classes_[first]};
    if (first < 0xE0) {
      const char32_t c = (first & 0x1F) << 6 | (byte(1) & 0x3F);
      return {c, 2, classes_[c]};
    }
    if (first < 0xF0) {
      const char32_t c = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
      return {c, 3, classes_[c]};
    }
    const char32_t c =
        (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    return {c, 4, Classify(c)};
  }

  // The class at `at`; none at the end.
  std::uint8_t Bits(std::size_t at) const { return at < size() ? At(at).bits : 0; }

  // The end of the run of characters from `at` on that have one of the classes `any`.
  std::size_t EndOfRun(std::size_t at, std::uint8_t any) const {
    while (at < size()) {
      const Character c = At(at);
      if ((c.bits & any) == 0) break;
      at += c.num_bytes;
    }
    return at;
  }

  // ... that have none of the classes `none`.
  std::size_t EndOfRunWithout(std::size_t at, std::uint8_t none) const {
    while (at < size()) {
      const Character c = At(at);
      if ((c.bits & none) != 0) break;
      at += c.num_bytes;
    }
    return at;
  }

  // [\r\n]* and, with `slash`, [\r\n/]*
  std::size_t EndOfNewlines(std::size_t at, bool slash) const {
    while (at < size() && (text_[at] == '\n' || text_[at] == '\r' || (slash && text_[at] == '/'))) {
      ++at;
    }
    return at;
  }

  // \p{N}{1,count} at a number.
  std::size_t EndOfNumbers(std::size_t at, int count) const {
    for (; count > 0 && at < size(); --count) {
      const Character c = At(at);
      if ((c.bits & kNumber) == 0) break;
      at += c.num_bytes;
    }
    return at;
  }

  // What remains for white space at `at`: \s*[\r\n]+ (with `newlines`), \s+(?!\S), \s+
  std::size_t EndOfSpaces(std::size_t at, bool newlines) const {
    std::size_t end = at;
    std::size_t last = at;  // where the last character begins
    std::size_t behind_newline = at;
    while (end < size()) {
      const Character c = At(end);
      if ((c.bits & kSpace) == 0) break;
      last = end;
      end += c.num_bytes;
      if ((c.bits & kNewline) != 0) behind_newline = end;
    }
    if (newlines && behind_newline > at) return behind_newline;
    return end == size() || last == at ? end : last;
  }

  // The end of 's|'t|'re|'ve|'m|'ll|'d at `at`, or `at`. With `any_case` capitals match as well,
  // and the long s, whose capital is S.
  std::size_t EndOfContraction(std::size_t at, bool any_case) const {
    if (at + 1 >= size() || text_[at] != '\'') return at;
    const auto letter = [&](std::size_t i) -> char {
      if (at + i >= size()) return '\0';
      const char c = text_[at + i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter(1);
    const char second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
    if (first == 'l' && second == 'l') return at + 3;
    if (any_case && text_.substr(at + 1, 2) == "\u017f") return at + 3;
    return at;
  }

 private:
  const std::string_view text_;
  const ClassTable& classes_;
};

std::size_t ScanGpt2(std::string_view text, std::size_t at) {
  const Scanned scanned(text);
  const Character c = scanned.At(at);
  if (c.code_point == '\'') {
    const std::size_t end = scanned.EndOfContraction(at, /*any_case=*/false);
    if (end > at) return end;
  }
  // An optional space, then a run of one class.
  const std::size_t run = c.code_point == ' ' ? at + 1 : at;
  const std::uint8_t bits = run == at ? c.bits : scanned.Bits(run);
  if (run < text.size() && (bits & kSpace) == 0) {
    if ((bits & kLetter) != 0) return scanned.EndOfRun(run, kLetter);
    if ((bits & kNumber) != 0) return scanned.EndOfRun(run, kNumber);
    return scanned.EndOfRunWithout(run, kSpace | kLetter | kNumber);
  }
  return scanned.EndOfSpaces(at, /*newlines=*/false);
}

// What the patterns since GPT-4's have in common behind their letters: numbers, other characters
// with newlines behind them, white space.
template <int kNumbers, bool kSlash>
std::size_t ScanOther(const Scanned& scanned, std::size_t at, const Character& c) {
  if ((c.bits & kNumber) != 0) return scanned.EndOfNumbers(at, kNumbers);
  const std::uint8_t kNotOther = kSpace | kLetter | kNumber;
  const std::size_t run = c.code_point == ' ' ? at + 1 : at;
  if (run < scanned.size()) {
    const std::uint8_t bits = run == at ? c.bits : scanned.Bits(run);
    if ((bits & kNotOther) == 0) {
      return scanned.EndOfNewlines(scanned.EndOfRunWithout(run, kNotOther), kSlash);
    }
  }
  return scanned.EndOfSpaces(at, /*newlines=*/true);
}

// cl100k's pattern, and those that differ from it in how many digits they take.
template <int kNumbers>
std::size_t ScanCl100k(std::string_view text, std::size_t at) {
  const Scanned scanned(text);
  const Character c = scanned.At(at);
  if (c.code_point == '\'') {
    const std::size_t end = scanned.EndOfContraction(at, /*any_case=*/true);
    if (end > at) return end;
  }
  // [^\r\n\p{L}\p{N}]?\p{L}+
  if ((c.bits & kLetter) != 0) return scanned.EndOfRun(at + c.num_bytes, kLetter);
  if ((c.bits & (kNewline | kNumber)) == 0) {
    const std::size_t behind = at + c.num_bytes;
    const std::size_t end = scanned.EndOfRun(behind, kLetter);
    if (end > behind) return end;
  }
  return ScanOther<kNumbers, /*kSlash=*/false>(scanned, at, c);
}

// The two ways to end a word of capital and small letters that begins at `at`; `at` for those that
// do not match.
struct CasedWord {
  std::size_t small;     // kCapital* kSmall+
  std::size_t capitals;  // kCapital+, when there is nothing small in it or behind it
};

CasedWord EndsOfCasedWord(const Scanned& scanned, std::size_t at) {
  std::size_t end = at;
  std::size_t behind_both = at;  // the end of the last character that is of both classes
  while (end < scanned.size()) {
    const Character c = scanned.At(end);
    if ((c.bits & kCapital) == 0) break;
    end += c.num_bytes;
    if ((c.bits & kSmall) != 0) behind_both = end;
  }
  // The capitals take all they can and give back what kSmall+ needs.
  if ((scanned.Bits(end) & kSmall) != 0) return {scanned.EndOfRun(end, kSmall), at};
  if (behind_both > at) return {behind_both, at};
  return {at, end};
}

// o200k's pattern, and Tekken's without its contractions.
template <int kNumbers, bool kContractions>
std::size_t ScanO200k(std::string_view text, std::size_t at) {
  const Scanned scanned(text);
  const Character c = scanned.At(at);
  std::size_t end = at;
  if ((c.bits & kLetter) != 0) {
    const CasedWord word = EndsOfCasedWord(scanned, at);
    end = word.small > at ? word.small : word.capitals;
  } else if ((c.bits & (kNewline | kNumber)) == 0) {
    // One character in front that is no letter; a mark, which is one of both classes, is rather a
    // word by itself than in front of capitals alone.
    const std::size_t behind = at + c.num_bytes;
    const CasedWord word = EndsOfCasedWord(scanned, behind);
    if (word.small > behind) {
      end = word.small;
    } else if ((c.bits & kMark) != 0) {
      end = behind;
    } else if (word.capitals > behind) {
      end = word.capitals;
    }
  }
  if (end > at) return kContractions ? scanned.EndOfContraction(end, /*any_case=*/true) : end;
  return ScanOther<kNumbers, /*kSlash=*/true>(scanned, at, c);
}

bool IsAsciiLetter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

std::size_t ScanDeepseek3(std::string_view text, std::size_t at) {
  const Scanned scanned(text);
  const Character c = scanned.At(at);
  // An ASCII sign and ASCII letters.
  if (c.code_point < 0x80 && (c.bits & kSymbol) != 0 && at + 1 < text.size() &&
      IsAsciiLetter(text[at + 1])) {
    std::size_t end = at + 2;
    while (end < text.size() && IsAsciiLetter(text[end])) ++end;
    return end;
  }
  // [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
  if ((c.bits & (kLetter | kMark)) != 0) return scanned.EndOfRun(at, kLetter | kMark);
  if ((c.bits & (kNewline | kSymbol)) == 0) {
    const std::size_t behind = at + c.num_bytes;
    const std::size_t end = scanned.EndOfRun(behind, kLetter | kMark);
    if (end > behind) return end;
  }
  const std::size_t run = c.code_point == ' ' ? at + 1 : at;
  if ((scanned.Bits(run) & kSymbol) != 0) {
    return scanned.EndOfNewlines(scanned.EndOfRun(run, kSymbol), /*slash=*/false);
  }
  return (c.bits & kSpace) != 0 ? scanned.EndOfSpaces(at, /*newlines=*/true) : at;
}

std::size_t ScanDeepseek3Cjk(std::string_view text, std::size_t at) {
  const Scanned scanned(text);
  while (at < text.size()) {
    const Character c = scanned.At(at);
    const bool is_in = (c.code_point >= 0x4E00 && c.code_point <= 0x9FA5) ||
                       (c.code_point >= 0x3040 && c.code_point <= 0x30FF);
    if (!is_in) break;
    at += c.num_bytes;
  }
  return at;
}

template <int kNumbers>
std::size_t ScanNumbers(std::string_view text, std::size_t at) {
  return Scanned(text).EndOfNumbers(at, kNumbers);
}

}  // namespace

WordScanner FindWordScanner(std::string_view regex) {
  struct Known {
    std::string_view regex;
    WordScanner scanner;
  };
  static constexpr Known kKnown[] = {
      {kGpt2Regex, ScanGpt2},
      {kLlama3Regex, ScanCl100k<3>},
      {kQwen2Regex, ScanCl100k<1>},
      {kTekkenRegex, ScanO200k<1, false>},
      {kO200kRegex, ScanO200k<3, true>},
      {kDeepseek3Words, ScanDeepseek3},
      {kDeepseek3Cjk, ScanDeepseek3Cjk},
      {kDigit, ScanNumbers<1>},
      {kThreeDigits, ScanNumbers<3>},
  };
  for (const Known& known : kKnown) {
    if (known.regex == regex) return known.scanner;
  }
  return nullptr;
}

}  // namespace baton::text
