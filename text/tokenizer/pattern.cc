#include "text/tokenizer/pattern.h"

#include <utility>

#include "text/utf8.h"

namespace baton::text {
namespace {

class RegexPattern final : public Pattern {
 public:
  explicit RegexPattern(Regex regex) : regex_(std::move(regex)) {}
  std::optional<Regex::Match> Find(std::string_view text, std::size_t from) const override {
    return regex_.Find(text, from);
  }

 private:
  const Regex regex_;
};

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}
  std::optional<Regex::Match> Find(std::string_view text, std::size_t from) const override {
    const std::size_t at = text.find(literal_, from);
    if (at == std::string_view::npos) return std::nullopt;
    return Regex::Match{at, at + literal_.size()};
  }

 private:
  const std::string literal_;
};

class ClassPattern final : public Pattern {
 public:
  explicit ClassPattern(bool (*is_in)(char32_t)) : is_in_(is_in) {}
  std::optional<Regex::Match> Find(std::string_view text, std::size_t from) const override {
    while (from < text.size()) {
      const Utf8Unit unit = ReadUtf8Unit(text.substr(from));
      if (is_in_(unit.code_point)) return Regex::Match{from, from + unit.num_bytes};
      from += unit.num_bytes;
    }
    return std::nullopt;
  }

 private:
  bool (*const is_in_)(char32_t);
};

}  // namespace

std::unique_ptr<Pattern> MakeRegexPattern(Regex regex) {
  return std::make_unique<RegexPattern>(std::move(regex));
}
std::unique_ptr<Pattern> MakeLiteralPattern(std::string literal) {
  return std::make_unique<LiteralPattern>(std::move(literal));
}
std::unique_ptr<Pattern> MakeClassPattern(bool (*is_in)(char32_t)) {
  return std::make_unique<ClassPattern>(is_in);
}

std::size_t NextCharacter(std::string_view text, std::size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

}  // namespace baton::text
