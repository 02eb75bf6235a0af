#include "text/jinja/unicode.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

UChar32 Icu(char32_t c) { return static_cast<UChar32>(c); }

icu::UnicodeString ToUtf16(std::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())));
}

std::string ToUtf8(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

}  // namespace

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  const std::uint32_t unprintable =
      U_GC_C_MASK | U_GC_Z_MASK;  // controls, formats, unassigned; separators
  return (U_GET_GC_MASK(Icu(c)) & unprintable) == 0;
}

bool IsSpace(char32_t c) { return u_isUWhiteSpace(Icu(c)) != 0 || (c >= 0x1C && c <= 0x1F); }

bool IsAlpha(char32_t c) { return (U_GET_GC_MASK(Icu(c)) & U_GC_L_MASK) != 0; }
bool IsDecimal(char32_t c) { return u_charType(Icu(c)) == U_DECIMAL_DIGIT_NUMBER; }

bool IsDigit(char32_t c) {
  const int type = u_getIntPropertyValue(Icu(c), UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}

bool IsNumeric(char32_t c) {
  return u_getIntPropertyValue(Icu(c), UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}

bool IsUpper(char32_t c) { return u_isUUppercase(Icu(c)) != 0; }
bool IsLower(char32_t c) { return u_isULowercase(Icu(c)) != 0; }
bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || u_istitle(Icu(c)) != 0; }

std::string ToUpper(std::string_view text) {
  return ToUtf8(ToUtf16(text).toUpper(icu::Locale::getRoot()));
}

std::string ToLower(std::string_view text) {
  return ToUtf8(ToUtf16(text).toLower(icu::Locale::getRoot()));
}

std::string CaseFold(std::string_view text) { return ToUtf8(ToUtf16(text).foldCase()); }

std::string ToTitleCharacter(char32_t c) {
  std::string out;
  const char32_t title = static_cast<char32_t>(u_totitle(Icu(c)));
  AppendUtf8(c, out);
  if (title == c) {
    // Characters like "ß" have a full mapping only: upper-case it, then lower all but the first.
    const std::u32string upper = ToCodePoints(ToUpper(out));
    if (upper.size() < 2) return out;
    return FromCodePoints(upper.substr(0, 1)) + ToLower(FromCodePoints(upper.substr(1)));
  }
  out.clear();
  AppendUtf8(title, out);
  return out;
}

std::u32string ToCodePoints(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = ReadUtf8Unit(text);
    out += unit.kind == Utf8Unit::Kind::kCharacter ? unit.code_point : U'\uFFFD';
    text.remove_prefix(unit.num_bytes);
  }
  return out;
}

std::string FromCodePoints(std::u32string_view code_points) {
  std::string out;
  out.reserve(code_points.size());
  for (const char32_t c : code_points) AppendUtf8(c, out);
  return out;
}

std::string_view Strip(std::string_view text, Side side, const std::u32string* chars) {
  const auto strips = [&](char32_t c) {
    return chars == nullptr ? IsSpace(c) : chars->find(c) != std::u32string::npos;
  };
  while (side != Side::kRight && !text.empty()) {
    const Utf8Unit unit = ReadUtf8Unit(text);
    if (!strips(unit.code_point)) break;
    text.remove_prefix(unit.num_bytes);
  }
  while (side != Side::kLeft && !text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!strips(ReadUtf8Unit(text.substr(start)).code_point)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace baton::text::jinja
