#pragma once
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer/normalizer.h"

namespace baton::text {

// SentencePiece's rewriting rules as a tokenizer.json carries them, a PrecompiledCharsmap in
// base64, applied as Hugging Face's tokenizers do: to grapheme clusters under six bytes, else to
// characters; the shortest entry that begins it decides.
//   kInvalidArgument  not base64, or damaged inside
absl::StatusOr<std::unique_ptr<Normalizer>> MakePrecompiledNormalizer(std::string_view base64);

}  // namespace baton::text
