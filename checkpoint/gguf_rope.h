#pragma once
#include "absl/status/status.h"
#include "checkpoint/family.h"
#include "checkpoint/gguf_keys.h"
#include "checkpoint/model_metadata.h"
#include "checkpoint/stored_tensor.h"

namespace baton::checkpoint {

// Reads the rotary settings of a GGUF file, and scales max_context by the same rule as for Hugging
// Face files (hyperparameters.h). Tables of factors are stored as tensors (rope_freqs.weight,
// rope_factors_long.weight, rope_factors_short.weight); they are taken out of `tensors`.
//
// Windowed layers get a rope of their own where the file (rope.freq_base_swa) or the family says
// so; of a family's own local base no scaling applies, as in llama.cpp. Must run after the sizes
// are complete.
//   kInvalidArgument     a value or a tensor that cannot be
//   kFailedPrecondition  a scaling, or a setting of one, that is not computed
absl::Status ReadGgufRope(const GgufKeys& keys, const Family& family, StoredTensors& tensors,
                          ModelMetadata& metadata);

}  // namespace baton::checkpoint
