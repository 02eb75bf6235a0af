#pragma once
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/text_assets.h"
#include "text/tokenizer/pipeline.h"

namespace baton::text {

// The parts of BuildFromGguf that depend on tokenizer.ggml.model. Each sets the model, the steps
// before it and `tokens[id].bytes` of the tokens that are not added ones; `pipeline.tokens` has its
// size already.

// "gpt2": byte-level BPE.
absl::Status AddGgufByteLevel(const checkpoint::GgufVocabulary& gguf, Pipeline& pipeline);

// "llama": SentencePiece's BPE, by scores or, in files without them, by merges.
absl::Status AddGgufSentencePieceBpe(const checkpoint::GgufVocabulary& gguf, Pipeline& pipeline);

// "t5": SentencePiece's Unigram.
absl::Status AddGgufUnigram(const checkpoint::GgufVocabulary& gguf, Pipeline& pipeline);

// The merges "a b" as pairs.
//   kInvalidArgument  one that is not two tokens; names it by number
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseGgufMerges(
    const checkpoint::GgufVocabulary& gguf);

// True for a token that is matched in the text itself and decoded as it is spelled.
inline bool IsAddedToken(checkpoint::TokenType type) {
  return type == checkpoint::TokenType::kControl || type == checkpoint::TokenType::kUserDefined ||
         type == checkpoint::TokenType::kUnknown;
}

}  // namespace baton::text
