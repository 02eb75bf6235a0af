#include "checkpoint/gguf_checkpoint.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/family.h"
#include "checkpoint/gguf_file.h"
#include "checkpoint/gguf_hyperparameters.h"
#include "checkpoint/gguf_keys.h"
#include "checkpoint/gguf_split.h"
#include "checkpoint/gguf_vocabulary.h"
#include "checkpoint/loaded_checkpoint.h"
#include "checkpoint/tensor_binding.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

absl::StatusOr<CheckpointParts> ReadParts(GgufFile file) {
  CheckpointParts parts;
  BATON_ASSIGN_OR_RETURN(const auto architecture, file.metadata.String("general.architecture"));
  if (!architecture.has_value()) {
    return absl::InvalidArgumentError("missing key: 'general.architecture'");
  }
  const GgufKeys keys(file.metadata, *architecture);
  BATON_ASSIGN_OR_RETURN(const auto experts, keys.Integer("expert_count"));
  BATON_ASSIGN_OR_RETURN(const Family* family,
                         FindFamily(FileFormat::kGguf, *architecture, experts.value_or(0) != 0));
  BATON_ASSIGN_OR_RETURN(parts.text_assets, ReadGgufTextAssets(file.metadata));
  BATON_ASSIGN_OR_RETURN(parts.metadata,
                         ReadGgufHyperparameters(keys, *family, parts.text_assets, file.tensors));
  BATON_ASSIGN_OR_RETURN(const auto name, file.metadata.String("general.name"));
  parts.metadata.name = std::string(name.value_or(""));
  BATON_ASSIGN_OR_RETURN(parts.tensors,
                         BindTensors(*family, FileFormat::kGguf, parts.metadata, file.tensors));
  return parts;
}

std::string NameOfFile(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGguf(const std::string& path) {
  std::vector<std::unique_ptr<MappedFile>> files;
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> mapped, MappedFile::Open(path));
  files.push_back(std::move(mapped));
  absl::StatusOr<GgufFile> file = ParseGguf(files.front()->bytes());
  if (!file.ok()) return Annotate(file.status(), path);
  absl::StatusOr<int> count = GgufSplitCount(*file);
  if (!count.ok()) return Annotate(count.status(), path);
  if (*count > 1) {
    const absl::Status status = AddGgufParts(path, *count, *file, files);
    if (!status.ok()) return Annotate(status, path);
  }
  absl::StatusOr<CheckpointParts> parts = ReadParts(*std::move(file));
  if (!parts.ok()) return Annotate(parts.status(), path);
  if (parts->metadata.name.empty()) parts->metadata.name = NameOfFile(path);
  parts->files = std::move(files);
  return std::make_unique<LoadedCheckpoint>(*std::move(parts));
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGgufFromMemory(std::span<const std::byte> bytes,
                                                               const std::string& name) {
  absl::StatusOr<GgufFile> file = ParseGguf(bytes);
  if (!file.ok()) return Annotate(file.status(), name);
  absl::StatusOr<int> count = GgufSplitCount(*file);
  if (!count.ok()) return Annotate(count.status(), name);
  if (*count > 1) {
    return Annotate(absl::FailedPreconditionError(absl::StrFormat(
                        "one of %d parts of a split model, which are read from disk only", *count)),
                    name);
  }
  absl::StatusOr<CheckpointParts> parts = ReadParts(*std::move(file));
  if (!parts.ok()) return Annotate(parts.status(), name);
  if (parts->metadata.name.empty()) parts->metadata.name = name;
  return std::make_unique<LoadedCheckpoint>(*std::move(parts));
}

}  // namespace baton::checkpoint
