#include "text/tokenizer/character_classes.h"

#include <unicode/uchar.h>

#include <cstdint>

namespace baton::text {
namespace {

bool IsIn(char32_t c, std::uint32_t categories) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & categories) != 0;
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
  if (!IsIn(c, U_GC_P_MASK)) return false;
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] <= 8;
}

bool IsWord(char32_t c) {
  return IsIn(c, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_JOIN_CONTROL) != 0;
}

bool IsMark(char32_t c) { return IsIn(c, U_GC_M_MASK); }

}  // namespace baton::text
