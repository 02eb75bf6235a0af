#pragma once
#include <string>

#include "checkpoint/model_metadata.h"

namespace baton::testing {

// What the metadata says, but for name and format, in a line per subject; numbers that say "none"
// or "as usual" are left out. For tables of expectations that a reader can check against a config:
//   llama: 3 layers of 64, 4/2 heads of 16, mlp 128 silu, vocabulary 512 tied, context 512
//   eps 1e-05, rope 10000 of 16
std::string MetadataText(const checkpoint::ModelMetadata& metadata);

}  // namespace baton::testing
