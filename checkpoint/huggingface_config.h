#pragma once
#include <string_view>

#include "absl/status/statusor.h"
#include "checkpoint/family.h"
#include "checkpoint/json_object.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/text_assets.h"

namespace baton::checkpoint {

struct HuggingFaceConfig {
  const Family* family = nullptr;
  ModelMetadata metadata;  // without name
};

// Reads config.json, in the form of transformers 4 or 5. Missing keys get the defaults of
// transformers' config class of the family.
//   kInvalidArgument     a value missing, of a wrong type, out of range or inconsistent
//   kFailedPrecondition  an architecture or a setting that is not supported
absl::StatusOr<HuggingFaceConfig> ReadHuggingFaceConfig(const JsonObject& whole);

// Adds bos id, eos ids and sampling defaults of a config.json or generation_config.json to
// `assets`. Ids outside [0, vocab_size) can never occur and are left out.
absl::Status AddGenerationConfig(const JsonObject& config, int vocab_size, TextAssets& assets);

// Adds special tokens and chat templates of a tokenizer_config.json or special_tokens_map.json;
// what is there already stays.
absl::Status AddTokenizerConfig(const JsonObject& config, TextAssets& assets);

// Adds the chat templates under "chat_template": one text, or a list of named ones. Takes none when
// there are some already: templates of two sources are not mixed.
absl::Status AddChatTemplates(const JsonObject& config, TextAssets& assets);

}  // namespace baton::checkpoint
