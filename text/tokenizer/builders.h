#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/text_assets.h"
#include "text/tokenizer/pipeline.h"

namespace baton::text {

// Both: kInvalidArgument for a damaged file, kFailedPrecondition for a part that is not supported,
// which the message names.

// From the text of a tokenizer.json.
absl::StatusOr<std::unique_ptr<Pipeline>> BuildFromTokenizerJson(std::string_view json);

// From a GGUF vocabulary; `assets` gives the ids of BOS and EOS.
absl::StatusOr<std::unique_ptr<Pipeline>> BuildFromGguf(const checkpoint::GgufVocabulary& gguf,
                                                        const checkpoint::TextAssets& assets);

// How the words of a GGUF vocabulary are found; a GGUF file only names it (tokenizer.ggml.pre).
struct GgufPreTokenizer {
  std::string_view name;                  // llama.cpp's name for it, as in the file
  std::vector<std::string_view> regexes;  // each splits what the one before has left
  bool ignore_merges = false;
  std::string_view normalizer = {};  // "NFC" or none
};

// nullptr for a name that is not known: guessing would give wrong ids without an error.
const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name);

// Their names, for messages: "command-r, deepseek-coder, ...".
std::string KnownGgufPreTokenizers();

}  // namespace baton::text
