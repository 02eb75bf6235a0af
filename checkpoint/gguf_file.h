#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "checkpoint/gguf_metadata.h"
#include "checkpoint/stored_tensor.h"

namespace baton::checkpoint {

// A GGUF file taken apart: what is listed and where it lies. Views point into the parsed bytes.
struct GgufFile {
  std::uint32_t version = 0;
  GgufMetadata metadata;
  StoredTensors tensors;
};

// Takes a GGUF file of version 2 or 3 (they differ in endianness only; big-endian is refused)
// apart. Reads no tensor data; memory used is proportional to the header actually present, however
// large the counts in it claim to be.
//   kInvalidArgument     not GGUF, truncated, or offsets, counts or names that cannot be
//   kFailedPrecondition  another version, or a tensor type whose size is unknown
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
absl::StatusOr<GgufFile> ParseGguf(std::span<const std::byte> bytes);

}  // namespace baton::checkpoint
