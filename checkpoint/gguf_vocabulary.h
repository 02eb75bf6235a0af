#pragma once
#include "absl/status/statusor.h"
#include "checkpoint/gguf_metadata.h"
#include "checkpoint/text_assets.h"

namespace baton::checkpoint {

// Reads tokenizer.* and general.sampling.* of a GGUF file. Without tokenizer.ggml.model, or when
// that is "no_vocab", no vocabulary is set.
//   kInvalidArgument  lists of different lengths, ids or types out of range, values of wrong types
absl::StatusOr<TextAssets> ReadGgufTextAssets(const GgufMetadata& metadata);

}  // namespace baton::checkpoint
