#include "text/tokenizer/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr char32_t kNumCharacters = 0x144;  // one more than the highest character of the alphabet

struct Alphabet {
  std::array<char32_t, 256> character_of;
  std::array<int, kNumCharacters> byte_of;
};

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
    alphabet.character_of[byte] = character;
    alphabet.byte_of[character] = byte;
  }
  return alphabet;
}

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

std::optional<std::string> BytesFromAlphabet(std::string_view token) {
  const Alphabet& alphabet = TheAlphabet();
  std::string bytes;
  while (!token.empty()) {
    const Utf8Unit unit = ReadUtf8Unit(token);
    if (unit.kind != Utf8Unit::Kind::kCharacter || unit.code_point >= kNumCharacters ||
        alphabet.byte_of[unit.code_point] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(alphabet.byte_of[unit.code_point]);
    token.remove_prefix(unit.num_bytes);
  }
  return bytes;
}

std::string AlphabetFromBytes(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) {
    AppendUtf8(TheAlphabet().character_of[static_cast<unsigned char>(byte)], token);
  }
  return token;
}

}  // namespace baton::text
