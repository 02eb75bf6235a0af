#pragma once
#include "absl/status/status.h"
#include "checkpoint/family.h"
#include "checkpoint/json_object.h"
#include "checkpoint/model_metadata.h"

namespace baton::checkpoint {

// Reads from config.json which layers attend to a window and which are not rotated, by the rules of
// transformers' config class of the family. A window no shorter than the context hides nothing and
// is left out. Must run after rope is read.
//   kInvalidArgument     a value of a wrong type, out of range or inconsistent
//   kFailedPrecondition  a kind of layer that is not known
absl::Status ReadHuggingFaceLayers(const JsonObject& config, const Family& family,
                                   ModelMetadata& metadata);

}  // namespace baton::checkpoint
