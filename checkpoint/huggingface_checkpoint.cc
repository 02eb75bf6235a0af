#include "checkpoint/huggingface_checkpoint.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/huggingface_config.h"
#include "checkpoint/int4_repacking.h"
#include "checkpoint/json_object.h"
#include "checkpoint/loaded_checkpoint.h"
#include "checkpoint/printable.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/tensor_binding.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

// The largest tokenizer.json known takes 35 MB, other files less than one. A parsed tree takes
// about 20 times its text, so the limit of parsed files also bounds memory.
constexpr std::size_t kMostTextBytes = 256 << 20;
constexpr std::size_t kMostParsedBytes = 16 << 20;
constexpr std::size_t kMostTemplates = 64;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Reading from one directory; every error names the file.
class Directory {
 public:
  explicit Directory(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string PathOf(const std::string& name) const {
    return (std::filesystem::path(path_) / name).string();
  }
  bool Has(const std::string& name) const {
    std::error_code ignored;
    return std::filesystem::exists(PathOf(name), ignored);
  }
  // Empty when there is no such file.
  absl::StatusOr<std::optional<std::string>> Text(const std::string& name,
                                                  std::size_t most_bytes = kMostTextBytes) const {
    if (!Has(name)) return std::optional<std::string>();
    BATON_ASSIGN_OR_RETURN(std::string text, ReadTextFile(PathOf(name), most_bytes));
    return std::optional(std::move(text));
  }
  absl::StatusOr<std::optional<JsonObject>> Json(const std::string& name) const {
    BATON_ASSIGN_OR_RETURN(const std::optional<std::string> text, Text(name, kMostParsedBytes));
    if (!text.has_value()) return std::optional<JsonObject>();
    absl::StatusOr<JsonObject> object = JsonObject::Parse(*text);
    if (!object.ok()) return Annotate(object.status(), PathOf(name));
    return std::optional(*std::move(object));
  }

 private:
  const std::string path_;
};

// A file's tensors and the mapping they point into.
struct Shard {
  std::unique_ptr<MappedFile> file;
  StoredTensors tensors;
};

absl::StatusOr<Shard> OpenShard(const std::string& path) {
  Shard shard;
  BATON_ASSIGN_OR_RETURN(shard.file, MappedFile::Open(path));
  absl::StatusOr<StoredTensors> tensors = ParseSafetensors(shard.file->bytes());
  if (!tensors.ok()) return Annotate(tensors.status(), path);
  shard.tensors = *std::move(tensors);
  return shard;
}

// A shard named by an index must lie in the directory itself.
absl::Status CheckPlainName(const std::string& name) {
  if (!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("shard name must be a plain file name: ", Quoted(name)));
}

// weight_map: tensor name -> shard file. Takes from each shard the tensors mapped to it.
absl::Status ReadShards(const Directory& directory, const JsonObject& weight_map,
                        CheckpointParts& parts, StoredTensors& stored) {
  std::map<std::string, Shard> shards;
  for (const std::string& tensor : weight_map.Keys()) {
    BATON_ASSIGN_OR_RETURN(const std::optional<std::string> name, weight_map.String(tensor));
    BATON_RETURN_IF_ERROR(CheckPlainName(name.value_or("")));
    auto opened = shards.find(*name);
    if (opened == shards.end()) {
      if (!directory.Has(*name)) {
        return absl::NotFoundError(absl::StrCat("missing shard: ", Quoted(*name),
                                                ", which holds tensor ", Quoted(tensor),
                                                "; download it into ", directory.path()));
      }
      BATON_ASSIGN_OR_RETURN(Shard shard, OpenShard(directory.PathOf(*name)));
      opened = shards.emplace(*name, std::move(shard)).first;
    }
    const auto found = opened->second.tensors.find(tensor);
    if (found == opened->second.tensors.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("missing tensor: ", Quoted(tensor), " is not in shard ", Quoted(*name)));
    }
    stored.insert(*found);
  }
  for (auto& [name, shard] : shards) parts.files.push_back(std::move(shard.file));
  return absl::OkStatus();
}

absl::StatusOr<StoredTensors> ReadWeights(const Directory& directory, CheckpointParts& parts) {
  if (directory.Has(kIndexFile)) {
    BATON_ASSIGN_OR_RETURN(const auto index, directory.Json(kIndexFile));
    absl::StatusOr<std::optional<JsonObject>> weight_map = index->Object("weight_map");
    StoredTensors stored;
    absl::Status status = weight_map.status();
    if (status.ok() && !weight_map->has_value()) {
      status = absl::InvalidArgumentError("missing key: 'weight_map'");
    }
    if (status.ok()) status = ReadShards(directory, **weight_map, parts, stored);
    if (!status.ok()) return Annotate(status, directory.PathOf(kIndexFile));
    return stored;
  }
  if (!directory.Has(kSingleFile)) {
    return Annotate(
        absl::NotFoundError(absl::StrCat("no weights: neither ", kSingleFile, " nor ", kIndexFile,
                                         "; save a PyTorch checkpoint with safe_serialization")),
        directory.path());
  }
  BATON_ASSIGN_OR_RETURN(Shard shard, OpenShard(directory.PathOf(kSingleFile)));
  parts.files.push_back(std::move(shard.file));
  return std::move(shard.tensors);
}

// Brings packed weights into blocks that the engine computes on.
absl::Status Repack(const Directory& directory, const std::optional<QuantizationConfig>& config,
                    StoredTensors& stored, RepackedWeights& memory) {
  if (config.has_value()) {
    return Annotate(RepackLinearMaps(*config, stored, memory), directory.path());
  }
  for (const auto& [name, tensor] : stored) {
    if (!name.ends_with(".qweight")) continue;
    return Annotate(absl::FailedPreconditionError(absl::StrCat(
                        "packed tensor ", Quoted(name),
                        ", but config.json has no "
                        "quantization_config that says how; take the one of the model's "
                        "quantize_config.json or quant_config.json")),
                    directory.path());
  }
  return absl::OkStatus();
}

// chat_template.jinja, and additional_chat_templates/NAME.jinja, as transformers 5 writes them.
absl::Status ReadTemplateFiles(const Directory& directory, TextAssets& assets) {
  BATON_ASSIGN_OR_RETURN(assets.chat_template,
                         directory.Text("chat_template.jinja", kMostParsedBytes));
  const std::string folder = "additional_chat_templates";
  if (!directory.Has(folder)) return absl::OkStatus();
  std::error_code error;
  std::filesystem::directory_iterator entry(directory.PathOf(folder), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path name = entry->path().filename();
    if (name.extension() != ".jinja") continue;
    if (assets.named_chat_templates.size() == kMostTemplates) {
      return absl::InvalidArgumentError(absl::StrCat(
          "too many chat templates: more than ", kMostTemplates, " in ", directory.PathOf(folder)));
    }
    BATON_ASSIGN_OR_RETURN(auto source,
                           directory.Text(folder + "/" + name.string(), kMostParsedBytes));
    if (source.has_value()) assets.named_chat_templates[name.stem().string()] = *std::move(source);
  }
  if (!error) return absl::OkStatus();
  return Annotate(absl::ErrnoToStatus(error.value(), "cannot list the folder"),
                  directory.PathOf(folder));
}

// Later sources do not replace what earlier ones have given.
absl::Status ReadTextAssets(const Directory& directory, const JsonObject& config, int vocab_size,
                            TextAssets& assets) {
  BATON_ASSIGN_OR_RETURN(assets.tokenizer_json, directory.Text("tokenizer.json"));
  BATON_RETURN_IF_ERROR(ReadTemplateFiles(directory, assets));
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    BATON_ASSIGN_OR_RETURN(const auto object, directory.Json(name));
    if (!object.has_value()) continue;
    const absl::Status status = AddTokenizerConfig(*object, assets);
    if (!status.ok()) return Annotate(status, directory.PathOf(name));
  }
  BATON_ASSIGN_OR_RETURN(const auto processor, directory.Json("chat_template.json"));
  if (processor.has_value()) {
    const absl::Status status = AddChatTemplates(*processor, assets);
    if (!status.ok()) return Annotate(status, directory.PathOf("chat_template.json"));
  }
  BATON_ASSIGN_OR_RETURN(const auto generation, directory.Json("generation_config.json"));
  if (generation.has_value()) {
    const absl::Status status = AddGenerationConfig(*generation, vocab_size, assets);
    if (!status.ok()) return Annotate(status, directory.PathOf("generation_config.json"));
  }
  return Annotate(AddGenerationConfig(config, vocab_size, assets), directory.PathOf("config.json"));
}

std::string NameOfDirectory(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  return error ? path : whole.filename().string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenHuggingFace(const std::string& directory_path) {
  const Directory directory(directory_path);
  BATON_ASSIGN_OR_RETURN(const auto json, directory.Json("config.json"));
  if (!json.has_value()) {
    return Annotate(
        absl::NotFoundError("no config.json in the directory; give the directory of a Hugging Face "
                            "model, or a .gguf file itself"),
        directory_path);
  }
  absl::StatusOr<HuggingFaceConfig> config = ReadHuggingFaceConfig(*json);
  if (!config.ok()) return Annotate(config.status(), directory.PathOf("config.json"));
  const auto quantization = ReadQuantizationConfig(*json);
  if (!quantization.ok()) return Annotate(quantization.status(), directory.PathOf("config.json"));
  CheckpointParts parts;
  parts.metadata = std::move(config->metadata);
  parts.metadata.name = NameOfDirectory(directory_path);
  BATON_ASSIGN_OR_RETURN(StoredTensors stored, ReadWeights(directory, parts));
  BATON_RETURN_IF_ERROR(Repack(directory, *quantization, stored, parts.repacked));
  absl::StatusOr<std::map<std::string, Tensor, std::less<>>> tensors =
      BindTensors(*config->family, FileFormat::kHuggingFace, parts.metadata, stored);
  if (!tensors.ok()) {
    const char* file = directory.Has(kIndexFile) ? kIndexFile : kSingleFile;
    return Annotate(tensors.status(), directory.PathOf(file));
  }
  parts.tensors = *std::move(tensors);
  BATON_RETURN_IF_ERROR(
      ReadTextAssets(directory, *json, parts.metadata.vocab_size, parts.text_assets));
  return std::make_unique<LoadedCheckpoint>(std::move(parts));
}

}  // namespace baton::checkpoint
