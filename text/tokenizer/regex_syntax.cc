#include "text/tokenizer/regex_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::text {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

// The insides of classes as Oniguruma has them for Unicode. Its \s is White_Space; PCRE2's takes
// U+180E as well.
constexpr std::string_view kSpace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view kNonSpace =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Outside a class, \w has Latin-1's numbers that are no digits, too.
constexpr std::string_view kWordOutside =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";

// What [:name:] stands for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kPosixClasses = {{
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"blank", "\\t\\p{Zs}"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", kSpace},
    {"upper", "\\p{Uppercase}"},
    {"word", kWord},
    {"xdigit", kHexDigit},
}};

// Names of properties that PCRE2 knows by another name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kPropertyNames = {{
    {"Letter", "L"},
    {"Lowercase_Letter", "Ll"},
    {"Uppercase_Letter", "Lu"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"Alpha", "Alphabetic"},
    {"Digit", "Nd"},
    {"Title_Letter", "Lt"},
}};

bool Compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Translate() {
    std::string out;
    while (at_ < pattern_.size()) {
      if (Peek() == '\\') {
        BATON_RETURN_IF_ERROR(TranslateEscape(out));
      } else if (Peek() == '[') {
        BATON_ASSIGN_OR_RETURN(const std::string members, TranslateClass(0));
        out += members;
      } else if (Peek() == '(') {
        BATON_RETURN_IF_ERROR(TranslateGroup(out));
      } else if (Peek() == '{') {
        BATON_RETURN_IF_ERROR(TranslateInterval(out));
      } else {
        out += pattern_[at_++];
      }
    }
    return out;
  }

 private:
  // One side of an intersection: members that can stand in one class, and expressions for others.
  struct Operand {
    std::string members;
    std::vector<std::string> alternatives;
    bool empty() const { return members.empty() && alternatives.empty(); }
  };

  char Peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }

  absl::Status Unsupported(std::string_view what) const {
    return absl::FailedPreconditionError(
        absl::StrFormat("unsupported regular expression: %s at offset %d of \"%s\"", Absl(what),
                        at_, Absl(pattern_)));
  }

  // What `\p{...}` and its like are to PCRE2; at_ is at the backslash.
  absl::StatusOr<std::string> TranslateProperty() {
    const std::size_t close = pattern_.find('}', at_);
    if (Peek(2) != '{' || close == std::string_view::npos) return Unsupported("\\p without {}");
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    bool negated = Peek(1) == 'P';
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string known(name);
    for (const auto& [other, ours] : kPropertyNames) {
      if (absl::EqualsIgnoreCase(Absl(other), Absl(name))) known = ours;
    }
    // A script is to PCRE2 the characters that are used with it, unless told otherwise.
    if (known.size() > 2 && Compiles(absl::StrCat("\\p{sc:", known, "}"))) {
      known = absl::StrCat("sc:", known);
    }
    if (!Compiles(absl::StrCat("\\p{", known, "}"))) {
      return Unsupported(absl::StrCat("the property \"", Absl(name), "\""));
    }
    at_ = close + 1;
    return absl::StrCat(negated ? "\\P{" : "\\p{", known, "}");
  }

  // The members a class escape stands for, `negative` if it is their complement; empty for another
  // escape. Moves on behind it.
  struct ClassEscape {
    std::string_view members;
    bool negative = false;
  };
  ClassEscape ReadClassEscape(std::string_view word) {
    ClassEscape escape;
    switch (Peek(1)) {
      case 's':
        escape = {kSpace};
        break;
      case 'S':
        escape = {kNonSpace};
        break;
      case 'w':
        escape = {word};
        break;
      case 'W':
        escape = {word, true};
        break;
      case 'h':
        escape = {kHexDigit};
        break;
      case 'H':
        escape = {kHexDigit, true};
        break;
      default:
        return escape;
    }
    at_ += 2;
    return escape;
  }

  // A character spelled with a backslash.
  std::string ReadCharacterEscape() {
    std::size_t length = 2;
    if (Peek(1) == 'u') length = 6;
    if (Peek(1) == 'x' && Peek(2) == '{') {
      const std::size_t close = pattern_.find('}', at_);
      if (close != std::string_view::npos) length = close + 1 - at_;
    }
    const std::string_view escape = pattern_.substr(at_, length);
    at_ += escape.size();
    if (escape.size() == 6 && escape[1] == 'u') {
      return absl::StrCat("\\x{", Absl(escape.substr(2)), "}");
    }
    return escape == "\\v" ? "\\x{b}" : std::string(escape);
  }

  absl::Status TranslateEscape(std::string& out) {
    const ClassEscape escape = ReadClassEscape(kWordOutside);
    if (!escape.members.empty()) {
      absl::StrAppend(&out, escape.negative ? "[^" : "[", Absl(escape.members), "]");
      return absl::OkStatus();
    }
    const std::string word = absl::StrCat("[", Absl(kWordOutside), "]");
    switch (Peek(1)) {
      case '\0':
        return Unsupported("a backslash at the end");
      case 'p':
      case 'P': {
        BATON_ASSIGN_OR_RETURN(const std::string property, TranslateProperty());
        out += property;
        return absl::OkStatus();
      }
      case 'b':
        absl::StrAppend(&out, "(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))");
        at_ += 2;
        return absl::OkStatus();
      case 'B':
        absl::StrAppend(&out, "(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))");
        at_ += 2;
        return absl::OkStatus();
      case 'g':
      case 'k':
      case 'K':
      case 'N':
      case 'O':
      case 'y':
      case 'Y':
      case 'Q':
      case 'E':
      case 'C':
      case 'G':
      case 'X':
        return Unsupported(absl::StrCat("\\", Absl(pattern_.substr(at_ + 1, 1))));
      default:
        out += ReadCharacterEscape();
        return absl::OkStatus();
    }
  }

  absl::Status TranslateGroup(std::string& out) {
    if (Peek(1) == '*') return Unsupported("(*");
    if (Peek(1) != '?') {
      out += pattern_[at_++];
      return absl::OkStatus();
    }
    const std::size_t end = pattern_.find_first_not_of(
        "abcdefghijklmnopqrstuvwxyz"
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ-",
        at_ + 2);
    const std::string_view flags =
        pattern_.substr(at_ + 2, end == std::string_view::npos ? end : end - at_ - 2);
    if (flags.empty()) {  // (?: (?= (?! (?> (?< and comments
      if (Peek(2) == '~' || Peek(2) == '(' || Peek(2) == '&' || Peek(2) == '#') {
        return Unsupported("a group of its kind");
      }
      if (Peek(2) == '<' && Peek(3) != '=' && Peek(3) != '!') return Unsupported("a named group");
      out += pattern_.substr(at_, 3);
      at_ = std::min(at_ + 3, pattern_.size());
      return absl::OkStatus();
    }
    out += "(?";
    for (const char flag : flags) {
      if (flag != 'i' && flag != 'm' && flag != '-') {
        return Unsupported(absl::StrCat("the flags \"", Absl(flags), "\""));
      }
      out += flag == 'm' ? 's' : flag;  // Ruby's name for "a dot is any character"
    }
    at_ = end == std::string_view::npos ? pattern_.size() : end;
    return absl::OkStatus();
  }

  absl::Status TranslateInterval(std::string& out) {
    const std::size_t close = pattern_.find('}', at_);
    const std::string_view inside = close == std::string_view::npos
                                        ? std::string_view()
                                        : pattern_.substr(at_ + 1, close - at_ - 1);
    const bool is_interval = !inside.empty() &&
                             inside.find_first_not_of("0123456789,") == std::string_view::npos &&
                             inside != ",";
    if (!is_interval) {
      out += "\\{";
      ++at_;
      return absl::OkStatus();
    }
    absl::StrAppend(&out, "{", inside[0] == ',' ? "0" : "", Absl(inside), "}");
    at_ = close + 1;
    if (Peek() == '+') return Unsupported("an interval followed by +");
    return absl::OkStatus();
  }

  // A class, from its [ to behind its ], as an expression that matches one character.
  absl::StatusOr<std::string> TranslateClass(int depth) {
    if (depth > 16) return Unsupported("classes nested more than 16 deep");
    ++at_;
    const bool negated = Peek() == '^';
    if (negated) ++at_;
    std::vector<Operand> operands(1);
    if (Peek() == ']') {
      operands.back().members = "\\]";  // first in a class it stands for itself
      ++at_;
    }
    while (Peek() != ']') {
      if (at_ >= pattern_.size()) return Unsupported("a class without ]");
      if (Peek() == '&' && Peek(1) == '&') {
        operands.emplace_back();
        at_ += 2;
        continue;
      }
      BATON_RETURN_IF_ERROR(ReadMember(operands.back(), depth));
    }
    ++at_;
    return Compose(operands, negated);
  }

  absl::Status ReadMember(Operand& operand, int depth) {
    if (Peek() == '[' && Peek(1) == ':') return ReadPosixClass(operand);
    if (Peek() == '[') {
      BATON_ASSIGN_OR_RETURN(std::string inner, TranslateClass(depth + 1));
      operand.alternatives.push_back(std::move(inner));
      return absl::OkStatus();
    }
    if (Peek() != '\\') {
      if (Peek() == '^') operand.members += '\\';
      operand.members += pattern_[at_++];
      return absl::OkStatus();
    }
    const ClassEscape escape = ReadClassEscape(kWord);
    if (escape.negative) {
      operand.alternatives.push_back(absl::StrCat("[^", Absl(escape.members), "]"));
    } else if (!escape.members.empty()) {
      operand.members += escape.members;
    } else if (Peek(1) == 'p' || Peek(1) == 'P') {
      BATON_ASSIGN_OR_RETURN(const std::string property, TranslateProperty());
      operand.members += property;
    } else {
      operand.members += ReadCharacterEscape();
    }
    return absl::OkStatus();
  }

  absl::Status ReadPosixClass(Operand& operand) {
    const std::size_t end = pattern_.find(":]", at_);
    if (end == std::string_view::npos) return Unsupported("[: without :]");
    const std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    const auto* known =
        std::find_if(kPosixClasses.begin(), kPosixClasses.end(),
                     [&](const auto& posix_class) { return posix_class.first == name; });
    if (known == kPosixClasses.end()) return Unsupported(absl::StrCat("[:", Absl(name), ":]"));
    operand.members += known->second;
    at_ = end + 2;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Compose(const std::vector<Operand>& operands, bool negated) const {
    for (const Operand& operand : operands) {
      if (operand.empty()) return Unsupported("an empty class");
    }
    const auto one = [](const Operand& operand) {
      std::string out = operand.members.empty() ? "" : absl::StrCat("[", operand.members, "]");
      if (operand.alternatives.empty()) return out;
      for (const std::string& alternative : operand.alternatives) {
        absl::StrAppend(&out, out.empty() ? "" : "|", alternative);
      }
      return absl::StrCat("(?:", out, ")");
    };
    if (operands.size() == 1 && operands[0].alternatives.empty()) {
      return absl::StrCat(negated ? "[^" : "[", operands[0].members, "]");
    }
    std::string all;
    for (std::size_t i = 0; i + 1 < operands.size(); ++i) {
      absl::StrAppend(&all, "(?=", one(operands[i]), ")");
    }
    all += one(operands.back());
    return negated ? absl::StrCat("(?:(?!", all, ")(?s:.))") : absl::StrCat("(?:", all, ")");
  }

  const std::string_view pattern_;
  std::size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::string> OnigurumaToPcre(std::string_view pattern) {
  return Translator(pattern).Translate();
}

}  // namespace baton::text
