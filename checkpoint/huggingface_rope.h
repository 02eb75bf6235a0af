#pragma once
#include "absl/status/status.h"
#include "checkpoint/family.h"
#include "checkpoint/json_object.h"
#include "checkpoint/model_metadata.h"

namespace baton::checkpoint {

// Reads the rotary settings of a config.json: those of transformers 4 (rope_theta, rope_scaling) or
// 5 (rope_parameters, for all layers or under "full_attention" and "sliding_attention"). Scalings:
// default, linear, dynamic, llama3, yarn, longrope (also by its old name, su).
//
// Also scales max_context (ScaleContext in hyperparameters.h), unless the family's configs state
// the scaled one.
// Must run after the sizes are complete.
//   kInvalidArgument     a value missing, of a wrong type or out of range
//   kFailedPrecondition  a scaling that is not known
absl::Status ReadHuggingFaceRope(const JsonObject& config, const Family& family,
                                 ModelMetadata& metadata);

}  // namespace baton::checkpoint
