#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/pattern.h"

namespace baton::text {

// What one token adds to a decoded text.
struct DecodedToken {
  std::string bytes;     // need not be UTF-8 by itself
  bool is_byte = false;  // a token like "<0x0A>" that a ByteFallback step has read
};

// Takes a character away at the ends of a decoded text, before bytes become U+FFFD or after: the
// character is never that. Plain value.
struct TextStrip {
  std::string character;  // one, in UTF-8; empty: nothing is taken away
  int max_front = 0;
  int max_back = 0;
};

// The steps of a tokenizer.json's decoder that look at one token at a time. Built once, then
// immutable and thread-safe.
class TokenDecoder {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    // `is_first`: the token begins the text.
    virtual std::string Apply(std::string_view token, bool is_first) const = 0;
    virtual bool DependsOnPlace() const = 0;  // `is_first` makes a difference
  };

  void Add(std::unique_ptr<Step> step) { steps_.push_back(std::move(step)); }
  void set_byte_fallback() { byte_fallback_ = true; }  // after the steps
  void set_byte_level() { byte_level_ = true; }        // after the steps
  bool byte_fallback() const { return byte_fallback_; }
  bool DependsOnPlace() const;

  // `token` as the vocabulary spells it.
  DecodedToken Decode(std::string_view token, bool is_first) const;

 private:
  std::vector<std::unique_ptr<Step>> steps_;
  bool byte_fallback_ = false;
  bool byte_level_ = false;
};

// Puts `content` for each match.
std::unique_ptr<TokenDecoder::Step> MakeDecoderReplace(std::unique_ptr<Pattern> pattern,
                                                       std::string content);
// Makes `replacement` a space; in the first token of a text it vanishes if `drops_first`.
std::unique_ptr<TokenDecoder::Step> MakeDecoderMetaspace(std::string replacement, bool drops_first);
// Strips each token by itself.
std::unique_ptr<TokenDecoder::Step> MakeDecoderStrip(TextStrip strip);

// Applies a TextStrip to a text that arrives in pieces. Not thread-safe; one per text.
class TextStripper {
 public:
  // `strip` must outlive this object. With `at_front` false the front of the text is left alone,
  // since it continues another.
  TextStripper(const TextStrip& strip, bool at_front)
      : strip_(strip), left_at_front_(at_front ? strip.max_front : 0) {}

  // Takes the next piece and returns what is sure to stay.
  std::string Append(std::string text);
  // What was held back at the back is not part of the text: the text has ended.

 private:
  const TextStrip& strip_;
  int left_at_front_;     // how many may still be taken away
  std::size_t held_ = 0;  // characters at the back that may have to go
};

}  // namespace baton::text
