#pragma once
#include <string>
#include <string_view>

namespace baton::text::jinja {

// Python's notions of characters, over ICU's tables.
bool IsPrintable(char32_t c);  // str.isprintable
bool IsSpace(char32_t c);      // str.isspace
bool IsAlpha(char32_t c);      // str.isalpha
bool IsDecimal(char32_t c);    // str.isdecimal
bool IsDigit(char32_t c);      // str.isdigit
bool IsNumeric(char32_t c);    // str.isnumeric
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsCased(char32_t c);

// Full case mappings ("ß" -> "SS"), independent of locale.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string CaseFold(std::string_view text);
std::string ToTitleCharacter(char32_t c);

std::u32string ToCodePoints(std::string_view text);
std::string FromCodePoints(std::u32string_view code_points);

enum class Side { kBoth, kLeft, kRight };
// str.strip: removes the characters of `chars`, or white space when `chars` is null.
std::string_view Strip(std::string_view text, Side side, const std::u32string* chars = nullptr);

}  // namespace baton::text::jinja
