#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace baton::text {

// GPT-2's printable alphabet for bytes: a vocabulary file spells byte b as the character that
// stands for it (itself where printable, else U+0100 and up, in byte order).

// The bytes that `token` spells; nothing when it holds a character outside the alphabet.
std::optional<std::string> BytesFromAlphabet(std::string_view token);

// How a vocabulary file spells `bytes`.
std::string AlphabetFromBytes(std::string_view bytes);

}  // namespace baton::text
