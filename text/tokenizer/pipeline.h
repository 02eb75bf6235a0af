#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace baton::text {

// What a tokenizer is made of: the way of a text is added tokens of the raw text, normalizers,
// normalized added tokens, pre-tokenizers, model, post-processor. Built from a file by one of the
// builders below; a further family is a further TokenModel and further steps, not another pipeline.
// Immutable and thread-safe once built.
class Pipeline {
 public:
  struct Token {
    std::string bytes;  // what it adds to a decoded text
    bool exists = false;
    bool special = false;
    bool is_byte = false;  // stands for one byte, which need not be UTF-8 by itself
  };

  // Fills `matcher_*` from `added`, and marks and names the tokens. To be called last when
  // building.
  void Finish(std::vector<AddedToken> added);

  // What token `id` of `tokens` adds; `is_first`: the token begins the text.
  std::string_view BytesOf(std::int32_t id, bool is_first) const;

  std::vector<std::unique_ptr<Normalizer>> normalizers;
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizers;
  std::unique_ptr<TokenModel> model;
  std::vector<std::int32_t> prefix_ids;  // what add_special_tokens puts before a text
  std::vector<std::int32_t> suffix_ids;  // and after it
  std::vector<Token> tokens;             // by id
  // What tokens add at the front of a text, where that differs from Token::bytes.
  absl::flat_hash_map<std::int32_t, std::string> first_bytes;
  TextStrip strip;  // of the text as a whole
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;
  absl::flat_hash_map<std::string, std::int32_t> id_by_bytes;

  // `keeps_front` as in Normalizer.
  std::string Normalize(std::string_view text, bool& keeps_front) const;
};

}  // namespace baton::text
