#include "checkpoint/inspect.h"

namespace baton::checkpoint {

ModelFacts Inspect(const Checkpoint& checkpoint) {
  ModelFacts facts;
  facts.metadata = checkpoint.metadata();
  facts.file_bytes = checkpoint.file_bytes();
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
  facts.has_chat_template = text.chat_template.has_value();
  return facts;
}

std::int64_t KvBytesPerToken(const ModelMetadata& metadata, int bytes_per_element) {
  return std::int64_t{2} * metadata.num_layers * metadata.num_kv_heads * metadata.head_dim *
         bytes_per_element;
}

}  // namespace baton::checkpoint
