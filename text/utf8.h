#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the front of a byte string.
struct Utf8Unit {
  enum class Kind : std::uint8_t {
    kCharacter,   // one well-formed character
    kIllFormed,   // a maximal ill-formed subpart (The Unicode Standard, 3.9, U+FFFD substitution)
    kIncomplete,  // well-formed so far, cut off by the end of the string
  };
  Kind kind = Kind::kCharacter;
  std::size_t num_bytes = 0;  // 1..4
  char32_t code_point = 0;    // of a kCharacter
};

// Reads the unit at the front of `bytes`, which must not be empty.
Utf8Unit ReadUtf8Unit(std::string_view bytes);

bool IsValidUtf8(std::string_view bytes);

// `bytes` with each ill-formed or incomplete subpart replaced by U+FFFD.
std::string ToValidUtf8(std::string_view bytes);

void AppendUtf8(char32_t code_point, std::string& out);

// The number of characters of valid UTF-8.
std::size_t CountCodePoints(std::string_view text);

// Decodes bytes that arrive in pieces cut anywhere. Not thread-safe.
class Utf8StreamDecoder {
 public:
  // Takes the next bytes and returns what is complete; holds back at most three bytes.
  std::string Append(std::string_view bytes);
  // Ends the stream: U+FFFD if bytes were held back, else nothing.
  std::string Finish();

 private:
  std::string pending_;
};

}  // namespace baton::text
