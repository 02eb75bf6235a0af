#include "text/tokenizer/character_classes.h"

#include <unicode/uchar.h>

#include <cstdint>

namespace baton::text {
namespace {

bool IsIn(char32_t c, std::uint32_t categories) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & categories) != 0;
}

bool IsOlderThan(char32_t c, int version) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] != 0 && age[0] < version;
}

bool IsAsciiPunctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

}  // namespace

bool IsWhiteSpace(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0; }

bool IsNumber(char32_t c) { return IsIn(c, U_GC_N_MASK); }

bool IsPunctuation(char32_t c) {
  if (c < 0x80) return IsAsciiPunctuation(c);
  if (c == 0x166D || c == 0x111C9) return true;  // no longer in this category
  return IsIn(c, U_GC_P_MASK) && IsOlderThan(c, 9);
}

bool IsWord(char32_t c) {
  return IsIn(c, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_JOIN_CONTROL) != 0;
}

bool IsMark(char32_t c) {
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // no longer in this category
  return c != 0x111C9 && IsIn(c, U_GC_M_MASK) && IsOlderThan(c, 10);
}

}  // namespace baton::text
