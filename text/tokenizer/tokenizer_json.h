#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/json_parts.h"
#include "text/tokenizer/pipeline.h"

namespace baton::text {

// The parts of a tokenizer.json, each read by one file and put into a Pipeline. The format is that
// of Hugging Face's tokenizers, 0.23. All: kInvalidArgument for a damaged part, kFailedPrecondition
// for one that is not supported, naming it and what is.

absl::Status AddNormalizers(JsonPart root, Pipeline& pipeline);

// With `model_takes_bytes` the ByteLevel at the end leaves words as they are, for a ByteLevelBpe.
absl::Status AddPreTokenizers(JsonPart root, bool model_takes_bytes, Pipeline& pipeline);

// A pattern of a Split or Replace: {"String": ...} or {"Regex": ...}.
absl::StatusOr<std::unique_ptr<Pattern>> ReadPattern(JsonPart part);

// How many times longer a Replace may make a text, in bytes.
absl::StatusOr<double> GrowthOfReplace(JsonPart part);
// Steps that together might make a text longer by more than this are refused: no real file needs
// it, and a text of one kilobyte must not fill the memory.
inline constexpr double kMaxGrowth = 4000;

struct JsonModel {
  std::unique_ptr<TokenModel> model;
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;  // as spelled in the file
};
// Whether a ByteLevelBpe does what the file says: BPE whose only and last byte-level step is the
// pre-tokenizer's last.
absl::StatusOr<bool> ModelTakesBytes(JsonPart root);
absl::StatusOr<JsonModel> ReadModel(JsonPart root, bool model_takes_bytes);

// With the ids of `vocabulary` for what is in it, as in the reference.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(
    JsonPart root, const std::vector<std::pair<std::string, std::int32_t>>& vocabulary);

// Fills the table of tokens by id, with what the decoder makes of each, and the decoder's strip.
// The normalizers must be there: an added token that is normalized decodes to its normalized form.
absl::Status AddTokens(JsonPart root,
                       const std::vector<std::pair<std::string, std::int32_t>>& vocabulary,
                       const std::vector<AddedToken>& added, Pipeline& pipeline);

// After the table of tokens.
absl::Status AddPostProcessor(JsonPart root, Pipeline& pipeline);

// Reads the decoder: its steps into `tokens`, what is done to the whole text into `strip`.
absl::Status ReadDecoder(JsonPart root, TokenDecoder& tokens, TextStrip& strip);

}  // namespace baton::text
