#pragma once
#include "absl/status/statusor.h"
#include "checkpoint/family.h"
#include "checkpoint/gguf_keys.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/stored_tensor.h"
#include "checkpoint/text_assets.h"

namespace baton::checkpoint {

// Reads what a GGUF file of `family` says about the model, and what its architecture implies. Which
// optional tensors there are (a head of its own, biases) is seen from `tensors`; those that hold
// settings are taken out of it. Leaves the name empty.
//
// Some settings have no key in GGUF, and then llama.cpp's rule for the architecture holds: which
// layers of Gemma have a window and which of SmolLM3 no rope, the query scale of Gemma (hidden_size
// / num_heads in the largest of each generation). attention.sliding_window_pattern and
// attention.scale are honoured where a converter wrote them.
//   kInvalidArgument     a value missing, of a wrong type, out of range or inconsistent
//   kFailedPrecondition  a setting that is not computed
absl::StatusOr<ModelMetadata> ReadGgufHyperparameters(const GgufKeys& keys, const Family& family,
                                                      const TextAssets& assets,
                                                      StoredTensors& tensors);

}  // namespace baton::checkpoint
