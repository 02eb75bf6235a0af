#pragma once
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/precompiled_charsmap.h"

namespace baton::text {

// SentencePiece's rewriting rules as a tokenizer.json carries them, a PrecompiledCharsmap in
// base64, applied as Hugging Face's tokenizers do: to grapheme clusters under six bytes, else to
// characters; the shortest entry that begins it decides.
std::unique_ptr<Normalizer> MakePrecompiledNormalizer(PrecompiledCharsmap map);

//   kInvalidArgument  not base64, or damaged inside
absl::StatusOr<PrecompiledCharsmap> CharsmapFromBase64(std::string_view base64);

}  // namespace baton::text
