#pragma once

namespace baton::text {

// The character classes that Hugging Face's tokenizers use outside its regular expressions: those
// of Rust's char and of its libraries. Thread-safe.

bool IsWhiteSpace(char32_t c);  // Unicode's White_Space
bool IsNumber(char32_t c);      // general category N
// ASCII's punctuation, which takes in symbols like $ and +, and category P of Unicode 8.
bool IsPunctuation(char32_t c);
// \w of Rust's regular expressions: Alphabetic, M, Nd, Pc, Join_Control.
bool IsWord(char32_t c);
bool IsMark(char32_t c);  // category M of Unicode 9

}  // namespace baton::text
