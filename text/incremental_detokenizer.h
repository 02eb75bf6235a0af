#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "text/tokenizer.h"
#include "text/tokenizer/decoder.h"
#include "text/utf8.h"

namespace baton::text {

// Where a stream's text begins.
enum class StreamFront : std::uint8_t {
  kTextFront,     // a text of its own: a space that the tokenizer adds in front is taken away again
  kContinuation,  // goes on where another text ended
};

// Turns one output stream's token ids into text as they arrive. Never gives half a UTF-8 character
// and never loses a byte: what can still become a character is held back, and each maximal
// ill-formed subpart becomes one U+FFFD (Unicode's recommended practice). The pieces of Append and
// Finish together are Tokenizer::Decode of all ids for a kTextFront, save that Decode may write
// more U+FFFD for byte tokens that are not UTF-8. Not thread-safe; one per stream.
class IncrementalDetokenizer {
 public:
  // `tokenizer` must outlive this object.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                         StreamFront front = StreamFront::kTextFront);

  // Takes the next ids and returns the text that is complete now, maybe empty.
  std::string Append(std::span<const std::int32_t> ids);
  std::string Append(std::int32_t id) { return Append(std::span(&id, 1)); }

  // Ends the stream: returns U+FFFD for a character that was begun and never ended, else nothing.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_tokens_;
  bool is_first_;
  Utf8StreamDecoder decoder_;
  TextStripper stripper_;
};

}  // namespace baton::text
