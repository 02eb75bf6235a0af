#pragma once
#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "checkpoint/stored_tensor.h"

namespace baton::checkpoint {

// Takes a safetensors file apart: an 8-byte length, that many bytes of JSON, tensor data. Views
// point into the parsed bytes; no tensor data is read. Stricter than the format where computing
// needs it: data must be aligned to its element size.
//   kInvalidArgument     truncated, not JSON, names given twice, shapes and offsets that disagree,
//                        overlap or leave the file
//   kFailedPrecondition  an element type whose size is unknown
// Format: https://github.com/huggingface/safetensors#format
absl::StatusOr<StoredTensors> ParseSafetensors(std::span<const std::byte> bytes);

}  // namespace baton::checkpoint
