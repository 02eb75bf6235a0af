#pragma once
#include <memory>
#include <optional>

#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/precompiled_charsmap.h"

namespace baton::text {

struct SentencePieceNormalization {
  std::optional<PrecompiledCharsmap> charsmap;
  bool add_space_prefix = true;           // a space goes before the text
  bool remove_extra_whitespaces = false;  // none at the ends, and no two in a row
};

// SentencePiece's normalizer (Kudo and Richardson 2018, arXiv:1808.06226): characters by the map,
// then spaces, each written as U+2581.
std::unique_ptr<Normalizer> MakeSentencePieceNormalizer(SentencePieceNormalization options);

}  // namespace baton::text
