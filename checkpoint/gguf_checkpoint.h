#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"

namespace baton::checkpoint {

// Opens a GGUF file. Errors as Checkpoint::Open.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGguf(const std::string& path);

// The same over bytes in memory, which must outlive the checkpoint. `name` stands for the path in
// messages.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGgufFromMemory(std::span<const std::byte> bytes,
                                                               const std::string& name);

}  // namespace baton::checkpoint
