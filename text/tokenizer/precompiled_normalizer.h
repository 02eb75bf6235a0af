#pragma once
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer/normalizer.h"

namespace baton::text {

// SentencePiece's rewriting rules as its models carry them ("precompiled_charsmap", here in
// base64): a double-array trie (Yata et al. 2007) over UTF-8 from what is rewritten to offsets into
// a list of replacements. Applied as Hugging Face's tokenizers do: to grapheme clusters under six
// bytes, else to characters; the shortest entry that begins it decides.
//   kInvalidArgument  not base64, or shorter than it says
absl::StatusOr<std::unique_ptr<Normalizer>> MakePrecompiledNormalizer(std::string_view base64);

}  // namespace baton::text
