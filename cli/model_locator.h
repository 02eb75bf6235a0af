#pragma once
#include <string>

#include "absl/status/statusor.h"

namespace baton::cli {

// The model to serve when the user names none: the default chat model if the quickstart has put it
// into the cache, else the tiny model that comes with Baton.
//   kNotFound  neither is there; says where it looked and how to get one
absl::StatusOr<std::string> FindDefaultModel();

// "SmolLM2-135M-Instruct" for ".../SmolLM2-135M-Instruct.Q4_1.gguf", "target" for ".../target/".
std::string ModelNameFromPath(const std::string& path);

}  // namespace baton::cli
