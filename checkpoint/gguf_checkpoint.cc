#include "checkpoint/gguf_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/family.h"
#include "checkpoint/gguf_file.h"
#include "checkpoint/gguf_vocabulary.h"
#include "checkpoint/hyperparameters.h"
#include "checkpoint/loaded_checkpoint.h"
#include "checkpoint/printable.h"
#include "checkpoint/tensor_binding.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kRopeFactors = "rope_freqs.weight";

// Keys of GGUF that stand for arithmetic that no family describes yet: refused unless zero.
constexpr std::string_view kZeroKeys[] = {"expert_count", "attention.max_alibi_bias",
                                          "attention.clamp_kqv"};

// Access to "<architecture>.<key>" of one file.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(absl::StrCat(std::string(architecture), ".")) {}

  std::string Full(std::string_view key) const { return absl::StrCat(prefix_, std::string(key)); }

  // Files may state a size per layer; an array of equal entries counts as one number.
  absl::StatusOr<std::optional<std::int64_t>> Integer(std::string_view key) const {
    const std::string full = Full(key);
    const auto found = metadata_.values().find(full);
    if (found == metadata_.values().end() || !std::holds_alternative<GgufArray>(found->second)) {
      return metadata_.Integer(full);
    }
    BATON_ASSIGN_OR_RETURN(const auto list, metadata_.Integers(full));
    if (list->empty()) return std::optional<std::int64_t>();
    for (const std::int64_t value : *list) {
      if (value != list->front()) {
        return absl::FailedPreconditionError(
            absl::StrCat("unsupported: ", Quoted(full), " differs between layers"));
      }
    }
    return std::optional(list->front());
  }
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const {
    return metadata_.Number(Full(key));
  }
  absl::StatusOr<std::optional<std::string_view>> String(std::string_view key) const {
    return metadata_.String(Full(key));
  }

 private:
  const GgufMetadata& metadata_;
  const std::string prefix_;
};

absl::Status ReadRopeScaling(const ArchitectureKeys& keys, RopeMetadata& rope) {
  BATON_ASSIGN_OR_RETURN(const auto old_factor, keys.Number("rope.scale_linear"));
  BATON_ASSIGN_OR_RETURN(const auto type, keys.String("rope.scaling.type"));
  BATON_ASSIGN_OR_RETURN(const auto factor, keys.Number("rope.scaling.factor"));
  const std::string_view scaling = type.value_or(old_factor.has_value() ? "linear" : "none");
  if (scaling == "none") return absl::OkStatus();
  if (scaling != "linear") {
    return absl::FailedPreconditionError(
        absl::StrCat("unsupported rope scaling: ", Quoted(scaling), "; supported: none, linear"));
  }
  rope.factor = static_cast<float>(factor.value_or(old_factor.value_or(1.0)));
  if (rope.factor != 1.0f) rope.scaling = RopeScaling::kLinear;
  return absl::OkStatus();
}

absl::Status ReadRope(const ArchitectureKeys& keys, const Family& family, RopeMetadata& rope) {
  BATON_ASSIGN_OR_RETURN(const auto theta, keys.Number("rope.freq_base"));
  BATON_ASSIGN_OR_RETURN(const auto dim, keys.Integer("rope.dimension_count"));
  rope.theta = static_cast<float>(theta.value_or(10000.0));
  if (dim.has_value() && (*dim < 1 || *dim > 1 << 16)) {
    return absl::InvalidArgumentError(absl::StrFormat("rotated dimensions out of range: %d", *dim));
  }
  rope.dim = static_cast<int>(dim.value_or(0));
  rope.interleaved = family.gguf_interleaved_rope;
  return ReadRopeScaling(keys, rope);
}

absl::Status CheckArithmeticKeys(const ArchitectureKeys& keys) {
  for (const std::string_view key : kZeroKeys) {
    BATON_ASSIGN_OR_RETURN(const auto value, keys.Number(key));
    if (value.has_value() && *value != 0) {
      return absl::FailedPreconditionError(
          absl::StrFormat("unsupported: %s is %g, must be 0", Quoted(keys.Full(key)), *value));
    }
  }
  return absl::OkStatus();
}

// Takes the factors out of the tensor list: they are metadata in a tensor's clothes.
absl::Status ReadRopeFactors(StoredTensors& tensors, RopeMetadata& rope) {
  const auto found = tensors.find(kRopeFactors);
  if (found == tensors.end()) return absl::OkStatus();
  const StoredTensor& tensor = found->second;
  const std::vector<std::int64_t> expected = {rope.dim / 2};
  if (tensor.dtype != DType::kF32 || tensor.shape != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", Quoted(kRopeFactors), ": wrong shape or type: ", ShapeText(tensor.shape), " ",
        tensor.type_name, ", expected ", ShapeText(expected), " F32"));
  }
  rope.frequency_factors.resize(static_cast<std::size_t>(rope.dim / 2));
  DequantizeRow(DType::kF32, tensor.data.data(), rope.dim / 2, rope.frequency_factors.data());
  for (const float factor : rope.frequency_factors) {
    if (!(factor > 0 && factor < 1e9f)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor %s: factor out of range: %g, must be positive", Quoted(kRopeFactors), factor));
    }
  }
  tensors.erase(found);
  return absl::OkStatus();
}

absl::Status ReadVocabularySize(const ArchitectureKeys& keys, const TextAssets& assets,
                                ModelMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(const auto stated, keys.Integer("vocab_size"));
  if (!assets.gguf.has_value() && !stated.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("missing key: ", Quoted(keys.Full("vocab_size")), " or a vocabulary"));
  }
  const std::int64_t size =
      assets.gguf.has_value() ? static_cast<std::int64_t>(assets.gguf->tokens.size()) : *stated;
  if (stated.value_or(size) != size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("vocabulary size disagrees: %s says %d, there are %d tokens",
                        Quoted(keys.Full("vocab_size")), *stated, size));
  }
  metadata.vocab_size = static_cast<int>(std::min<std::int64_t>(size, 1 << 30));
  return absl::OkStatus();
}

absl::StatusOr<ModelMetadata> ReadMetadata(const GgufFile& file, const Family& family,
                                           const ArchitectureKeys& keys, const TextAssets& assets) {
  ModelMetadata metadata;
  metadata.architecture = std::string(family.name);
  metadata.format = "gguf";
  BATON_ASSIGN_OR_RETURN(const auto name, file.metadata.String("general.name"));
  metadata.name = std::string(name.value_or(""));
  BATON_RETURN_IF_ERROR(ReadSizes(
      family, FileFormat::kGguf, [&](std::string_view key) { return keys.Integer(key); },
      metadata));
  BATON_RETURN_IF_ERROR(ReadVocabularySize(keys, assets, metadata));
  BATON_ASSIGN_OR_RETURN(const auto eps, keys.Number("attention.layer_norm_rms_epsilon"));
  if (!eps.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("missing key: ", Quoted(keys.Full("attention.layer_norm_rms_epsilon"))));
  }
  metadata.rms_norm_eps = static_cast<float>(*eps);
  BATON_RETURN_IF_ERROR(ReadRope(keys, family, metadata.rope));
  BATON_RETURN_IF_ERROR(CheckArithmeticKeys(keys));
  metadata.tied_embeddings = !file.tensors.contains("output.weight");
  metadata.attention_bias = file.tensors.contains("blk.0.attn_q.bias");
  metadata.output_bias = file.tensors.contains("blk.0.attn_output.bias");
  BATON_RETURN_IF_ERROR(CompleteSizes(metadata));
  if (metadata.rope.dim == 0) metadata.rope.dim = metadata.head_dim;
  BATON_RETURN_IF_ERROR(CheckRope(metadata));
  BATON_RETURN_IF_ERROR(CheckNumbers(metadata));
  BATON_ASSIGN_OR_RETURN(const auto value_size, keys.Integer("attention.value_length"));
  if (value_size.value_or(metadata.head_dim) != metadata.head_dim) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "unsupported: key and value head sizes differ: %d and %d", metadata.head_dim, *value_size));
  }
  return metadata;
}

absl::Status CheckNotSplit(const GgufMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(const auto parts, metadata.Integer("split.count"));
  if (parts.value_or(1) <= 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("file is one of %d parts of a split model; join them with llama.cpp's "
                      "'llama-gguf-split --merge'",
                      *parts));
}

absl::StatusOr<CheckpointParts> ReadParts(std::span<const std::byte> bytes) {
  CheckpointParts parts;
  BATON_ASSIGN_OR_RETURN(GgufFile file, ParseGguf(bytes));
  BATON_RETURN_IF_ERROR(CheckNotSplit(file.metadata));
  BATON_ASSIGN_OR_RETURN(const auto architecture, file.metadata.String("general.architecture"));
  if (!architecture.has_value()) {
    return absl::InvalidArgumentError("missing key: 'general.architecture'");
  }
  BATON_ASSIGN_OR_RETURN(const Family* family, FindFamily(FileFormat::kGguf, *architecture));
  BATON_ASSIGN_OR_RETURN(parts.text_assets, ReadGgufTextAssets(file.metadata));
  const ArchitectureKeys keys(file.metadata, *architecture);
  BATON_ASSIGN_OR_RETURN(parts.metadata, ReadMetadata(file, *family, keys, parts.text_assets));
  BATON_RETURN_IF_ERROR(ReadRopeFactors(file.tensors, parts.metadata.rope));
  BATON_ASSIGN_OR_RETURN(parts.tensors,
                         BindTensors(*family, FileFormat::kGguf, parts.metadata, file.tensors));
  return parts;
}

std::string NameOfFile(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGguf(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  absl::StatusOr<CheckpointParts> parts = ReadParts(file->bytes());
  if (!parts.ok()) return Annotate(parts.status(), path);
  if (parts->metadata.name.empty()) parts->metadata.name = NameOfFile(path);
  parts->files.push_back(std::move(file));
  return std::make_unique<LoadedCheckpoint>(*std::move(parts));
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGgufFromMemory(std::span<const std::byte> bytes,
                                                               const std::string& name) {
  absl::StatusOr<CheckpointParts> parts = ReadParts(bytes);
  if (!parts.ok()) return Annotate(parts.status(), name);
  if (parts->metadata.name.empty()) parts->metadata.name = name;
  return std::make_unique<LoadedCheckpoint>(*std::move(parts));
}

}  // namespace baton::checkpoint
