#include "text/jinja/lexer.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "text/jinja/string_literal.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

constexpr auto kNpos = std::string_view::npos;

// "\r\n" and "\r" become "\n", and one newline at the end is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsNameStart(char32_t c) { return c == '_' || IsAlpha(c); }
bool IsNamePart(char32_t c) { return IsNameStart(c) || IsNumeric(c); }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) LexText();
    Add(TokenKind::kEnd, {}, at_);
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(at_); }
  bool LooksAt(std::string_view text) const { return Rest().starts_with(text); }

  Position PositionOf(std::size_t offset) {
    // Offsets mostly grow, so that counting goes on from the last one.
    if (offset < counted_to_) {
      counted_to_ = 0;
      counted_ = Position();
    }
    for (; counted_to_ < offset; ++counted_to_) {
      if (source_[counted_to_] == '\n') {
        ++counted_.line;
        counted_.column = 1;
      } else if ((static_cast<unsigned char>(source_[counted_to_]) & 0xC0) != 0x80) {
        ++counted_.column;
      }
    }
    return counted_;
  }

  [[noreturn]] void Fail(std::size_t offset, std::string message) {
    throw Error(ErrorKind::kSyntax, std::move(message), PositionOf(offset));
  }

  void Add(TokenKind kind, std::string text, std::size_t offset) {
    tokens_.push_back({kind, std::move(text), Value(), PositionOf(offset)});
  }

  void AddText(std::string_view text, std::size_t offset) {
    if (!text.empty()) Add(TokenKind::kText, std::string(text), offset);
  }

  void SkipSpaces() {
    while (at_ < source_.size()) {
      const Utf8Unit unit = ReadUtf8Unit(Rest());
      if (!IsSpace(unit.code_point)) break;
      at_ += unit.num_bytes;
    }
  }

  // Ends a tag, whose last byte is before at_, and remembers whether a line begins after it.
  void EndTag(bool strip, bool trim_newline) {
    if (strip) {
      SkipSpaces();
    } else if (trim_newline && LooksAt("\n")) {
      ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  // What is left of the text before a tag after its "-", "+" or nothing and lstrip_blocks.
  std::string_view StripBeforeTag(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return Strip(text, Side::kRight);
    if (sign == '+' || is_variable) return text;
    const std::size_t line = text.rfind('\n') + 1;  // 0 when there is none
    if (line == 0 && !line_starting_) return text;
    return Strip(text.substr(line), Side::kBoth).empty() ? text.substr(0, line) : text;
  }

  void LexText() {
    const std::size_t begin = at_;
    std::size_t tag = begin;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == kNpos || tag + 1 >= source_.size()) {
        AddText(std::string_view(source_).substr(begin), begin);
        at_ = source_.size();
        return;
      }
      const char second = source_[tag + 1];
      if (second == '%' || second == '{' || second == '#') break;
      ++tag;
    }
    const char type = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    AddText(StripBeforeTag(std::string_view(source_).substr(begin, tag - begin),
                           has_sign ? sign : '\0', type == '{'),
            begin);
    at_ = tag + 2 + (has_sign ? 1 : 0);
    if (type == '#') {
      LexComment(tag);
    } else if (type == '%' && LexRaw(tag)) {
      return;
    } else {
      LexTag(tag, type == '%');
    }
  }

  void LexComment(std::size_t begin) {
    const std::size_t end = source_.find("#}", at_);
    if (end == kNpos) Fail(begin, "Missing end of comment tag");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    at_ = end + 2;
    EndTag(sign == '-', sign != '+');
  }

  // Takes a whole raw block, if one begins here (behind "{%").
  bool LexRaw(std::size_t begin) {
    const std::size_t after_sign = at_;
    SkipSpaces();
    if (!LooksAt("raw")) {
      at_ = after_sign;
      return false;
    }
    at_ += 3;
    SkipSpaces();
    const bool strip = LooksAt("-%}");
    if (!strip && !LooksAt("%}")) {
      at_ = after_sign;
      return false;
    }
    at_ += strip ? 3 : 2;
    EndTag(strip, /*trim_newline=*/false);
    const std::size_t body = at_;
    for (std::size_t tag = source_.find("{%", at_); tag != kNpos;
         tag = source_.find("{%", tag + 1)) {
      at_ = tag + 2;
      const char sign = at_ < source_.size() ? source_[at_] : '\0';
      if (sign == '-' || sign == '+') ++at_;
      SkipSpaces();
      if (!LooksAt("endraw")) continue;
      at_ += 6;
      SkipSpaces();
      const char end_sign = LooksAt("-%}") ? '-' : LooksAt("+%}") ? '+' : '\0';
      if (end_sign == '\0' && !LooksAt("%}")) continue;
      AddText(StripBeforeTag(std::string_view(source_).substr(body, tag - body), sign, false),
              body);
      at_ += end_sign == '\0' ? 2 : 3;
      EndTag(end_sign == '-', end_sign != '+');
      return true;
    }
    Fail(begin, "Missing end of raw directive");
  }

  // Whether the end of the tag stands here; takes it if so.
  bool LexTagEnd(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    const bool strip = LooksAt("-") && Rest().substr(1).starts_with(end);
    const bool keep = is_block && LooksAt("+") && Rest().substr(1).starts_with(end);
    if (!strip && !keep && !LooksAt(end)) return false;
    Add(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, std::string(end), at_);
    at_ += strip || keep ? 3 : 2;
    EndTag(strip, is_block && !keep);
    return true;
  }

  void LexTag(std::size_t begin, bool is_block) {
    Add(is_block ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, {}, begin);
    std::string open;  // brackets not closed yet
    while (true) {
      SkipSpaces();
      if (at_ >= source_.size()) Fail(begin, "Unexpected end of template: this tag is not closed");
      if (open.empty() && LexTagEnd(is_block)) return;
      const char32_t c = ReadUtf8Unit(Rest()).code_point;
      if (c == '"' || c == '\'') {
        LexString();
      } else if (c >= '0' && c <= '9') {
        LexNumber();
      } else if (IsNameStart(c)) {
        LexName();
      } else {
        LexOperator(open);
      }
    }
  }

  void LexName() {
    const std::size_t begin = at_;
    while (at_ < source_.size()) {
      const Utf8Unit unit = ReadUtf8Unit(Rest());
      if (!IsNamePart(unit.code_point)) break;
      at_ += unit.num_bytes;
    }
    Add(TokenKind::kName, source_.substr(begin, at_ - begin), begin);
  }

  void LexString() {
    const std::size_t begin = at_;
    const char quote = source_[at_++];
    const std::size_t text = at_;
    while (at_ < source_.size() && source_[at_] != quote) at_ += source_[at_] == '\\' ? 2 : 1;
    if (at_ >= source_.size()) Fail(begin, "a string is not closed");
    const std::optional<std::string> value =
        UnescapeString(std::string_view(source_).substr(text, at_ - text));
    if (!value) Fail(begin, "a string with a malformed escape sequence");
    Add(TokenKind::kString, *value, begin);
    ++at_;
  }

  // Digits with single underscores between them.
  std::string TakeDigits(int base) {
    std::string digits;
    while (at_ < source_.size()) {
      const std::size_t next = source_[at_] == '_' && !digits.empty() ? at_ + 1 : at_;
      if (next >= source_.size() || !IsDigitOf(base, source_[next])) break;
      digits += source_[next];
      at_ = next + 1;
    }
    return digits;
  }

  static bool IsDigitOf(int base, char c) {
    if (c >= '0' && c <= '9') return c - '0' < base;
    return base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'));
  }

  void LexNumber() {
    const std::size_t begin = at_;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
      const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      if (base != 10) {
        at_ += 2;
        AddInteger(TakeDigits(base), base, begin);
        return;
      }
    }
    std::string text = TakeDigits(10);
    bool is_float = false;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    const auto digit_at = [&](std::size_t i) {
      return i < source_.size() && IsDigitOf(10, source_[i]);
    };
    if (!after_dot && LooksAt(".") && digit_at(at_ + 1)) {
      ++at_;
      text += "." + TakeDigits(10);
      is_float = true;
    }
    if (!after_dot && (LooksAt("e") || LooksAt("E"))) {
      const bool sign =
          at_ + 1 < source_.size() && (source_[at_ + 1] == '+' || source_[at_ + 1] == '-');
      if (digit_at(at_ + (sign ? 2 : 1))) {
        text += source_.substr(at_, sign ? 2 : 1);
        at_ += sign ? 2 : 1;
        text += TakeDigits(10);
        is_float = true;
      }
    }
    if (!is_float) {
      AddInteger(text, 10, begin);
      return;
    }
    Add(TokenKind::kNumber, text, begin);
    std::erase(text, '+');
    double real = 0.0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), real);
    if (result.ec == std::errc::result_out_of_range) {
      real = text.find("e-") == std::string::npos ? std::numeric_limits<double>::infinity() : 0.0;
    }
    tokens_.back().value = Value::Float(real);
  }

  void AddInteger(std::string digits, int base, std::size_t begin) {
    std::int64_t integer = 0;
    const auto result =
        std::from_chars(digits.data(), digits.data() + digits.size(), integer, base);
    if (digits.empty() || (base != 10 && result.ec != std::errc())) {
      Fail(begin, "a malformed or too large number");
    }
    if (base == 10 && digits.size() > 1 && digits[0] == '0' && integer != 0) {
      Fail(begin, "a decimal number with a leading zero");
    }
    Add(TokenKind::kNumber, digits, begin);
    tokens_.back().value =
        result.ec == std::errc() ? Value::Int(integer) : Value::BigInt(std::move(digits));
  }

  void LexOperator(std::string& open) {
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!LooksAt(op)) continue;
      if (op == "(" || op == "[" || op == "{") open += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (open.empty()) Fail(at_, "unexpected '" + std::string(op) + "'");
        if (open.back() != op[0]) {
          Fail(at_, "unexpected '" + std::string(op) + "', expected '" + open.back() + "'");
        }
        open.pop_back();
      }
      Add(TokenKind::kOperator, std::string(op), at_);
      at_ += op.size();
      return;
    }
    const Utf8Unit unit = ReadUtf8Unit(Rest());
    Fail(at_, "unexpected character '" + source_.substr(at_, unit.num_bytes) + "'");
  }

  const std::string source_;
  std::size_t at_ = 0;
  bool line_starting_ = true;  // the text at at_ begins a line
  std::vector<Token> tokens_;
  std::size_t counted_to_ = 0;
  Position counted_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace baton::text::jinja
