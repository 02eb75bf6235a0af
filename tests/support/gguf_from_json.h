#pragma once
#include <string>
#include <string_view>

#include "checkpoint/text_assets.h"

namespace baton::testing {

// The GGUF vocabulary that llama.cpp's converter makes of a tokenizer.json: of one with a ByteLevel
// step for tokenizer.ggml.model "gpt2", with `name` as tokenizer.ggml.pre; of a converted
// SentencePiece BPE for "llama", where scores follow the order of the merges. `assets` also gets
// the ids the post-processor begins with. Throws nlohmann::json exceptions on damaged files.
checkpoint::TextAssets GgufByteLevelFromJson(const std::string& tokenizer_json,
                                             std::string_view name);
checkpoint::TextAssets GgufSentencePieceFromJson(const std::string& tokenizer_json);

}  // namespace baton::testing
