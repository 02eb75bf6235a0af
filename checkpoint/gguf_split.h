#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/gguf_file.h"
#include "checkpoint/mapped_file.h"

namespace baton::checkpoint {

// The files of the model that `path` names, by its name alone: all parts where it is named like the
// first of some, else itself.
std::vector<std::string> GgufPartPaths(const std::string& path);

// Number of the parts a model is split into; 1 when it is not split.
//   kInvalidArgument  a count that cannot be
absl::StatusOr<int> GgufSplitCount(const GgufFile& file);

// Adds the tensors of the other parts to those of `first`, the first part of a split model, which
// lies at `path`. llama.cpp names parts NAME-00001-of-00003.gguf; the metadata is in the first.
// Maps the parts and adds them to `files`.
//   kInvalidArgument     `path` is another part, or is not named like one; parts that do not fit
//   kNotFound            a part is missing
absl::Status AddGgufParts(const std::string& path, int count, GgufFile& first,
                          std::vector<std::unique_ptr<MappedFile>>& files);

}  // namespace baton::checkpoint
