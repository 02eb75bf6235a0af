#include "checkpoint/inspect.h"

#include <filesystem>
#include <system_error>

#include "checkpoint/gguf_split.h"
#include "common/status.h"

namespace baton::checkpoint {

ModelFacts Inspect(const Checkpoint& checkpoint) {
  ModelFacts facts;
  facts.metadata = checkpoint.metadata();
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::int64_t parameters = tensor.rows() * tensor.columns();
    const auto bytes = static_cast<std::int64_t>(tensor.data.size());
    ModelFacts::TypeShare& share = facts.by_type[tensor.dtype];
    ++share.tensors;
    share.parameters += parameters;
    share.bytes += bytes;
    facts.parameters += parameters;
    facts.tensor_bytes += bytes;
  }
  if (facts.parameters > 0) {
    facts.bits_per_parameter =
        8.0 * static_cast<double>(facts.tensor_bytes) / static_cast<double>(facts.parameters);
  }
  const TextAssets& text = checkpoint.text_assets();
  if (text.gguf.has_value()) {
    facts.vocabulary_tokens = static_cast<std::int64_t>(text.gguf->tokens.size());
  }
  facts.has_tokenizer = text.gguf.has_value() || text.tokenizer_json.has_value();
  facts.has_chat_template = text.chat_template.has_value() || !text.named_chat_templates.empty();
  return facts;
}

absl::StatusOr<std::int64_t> WeightFileBytes(const std::string& path) {
  std::error_code error;
  std::uintmax_t total = 0;
  if (!std::filesystem::is_directory(path, error)) {
    for (const std::string& part : GgufPartPaths(path)) {
      total += std::filesystem::file_size(part, error);
      if (error) break;
    }
  } else {
    for (auto entry = std::filesystem::directory_iterator(path, error);
         !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      if (entry->path().extension() == ".safetensors") total += entry->file_size(error);
      if (error) break;
    }
  }
  if (error) return Annotate(absl::ErrnoToStatus(error.value(), "cannot read the size"), path);
  return static_cast<std::int64_t>(total);
}

std::int64_t KvBytesPerToken(const ModelMetadata& metadata, int bytes_per_element) {
  return std::int64_t{2} * metadata.num_layers * metadata.num_kv_heads * metadata.head_dim *
         bytes_per_element;
}

}  // namespace baton::checkpoint
