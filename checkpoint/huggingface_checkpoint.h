#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"

namespace baton::checkpoint {

// Opens a Hugging Face directory: config.json; model.safetensors, or the shards that
// model.safetensors.index.json names; and, where there, tokenizer.json, tokenizer_config.json,
// special_tokens_map.json, chat_template.jinja, additional_chat_templates/*.jinja,
// chat_template.json and generation_config.json. Errors as Checkpoint::Open.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenHuggingFace(const std::string& directory);

}  // namespace baton::checkpoint
