#include "tests/support/safetensors_builder.h"

#include <algorithm>
#include <span>

#include "common/check.h"

namespace baton::testing {

SafetensorsBuilder::Tensor& SafetensorsBuilder::FindTensor(std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  BATON_CHECK(found != tensors.end(), "the builder has no such tensor");
  return *found;
}

void SafetensorsBuilder::RemoveTensor(std::string_view name) {
  std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
}

std::string SafetensorsBuilder::Header() const {
  std::string json = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::int64_t next = 0;
  for (const Tensor& tensor : tensors) {
    const std::int64_t begin = tensor.begin >= 0 ? tensor.begin : next;
    next += static_cast<std::int64_t>(tensor.data.size());
    const std::int64_t end = tensor.end >= 0 ? tensor.end : next;
    json += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    json += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

std::vector<std::byte> SafetensorsBuilder::Build() const {
  const std::string json = header.empty() ? Header() : header;
  const std::int64_t length =
      header_length >= 0 ? header_length : static_cast<std::int64_t>(json.size());
  std::vector<std::byte> out;
  const auto put = [&](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  put(std::as_bytes(std::span(&length, 1)));
  put(std::as_bytes(std::span(json)));
  for (const Tensor& tensor : tensors) put(tensor.data);
  return out;
}

namespace {

SafetensorsBuilder::Tensor Zeros(const std::string& name, std::vector<std::int64_t> shape) {
  std::size_t elements = 1;
  for (const std::int64_t size : shape) elements *= static_cast<std::size_t>(size);
  return {.name = name,
          .dtype = "BF16",
          .shape = std::move(shape),
          .data = std::vector<std::byte>(2 * elements)};
}

}  // namespace

SafetensorsBuilder SmallLlamaSafetensors() {
  SafetensorsBuilder builder;
  builder.tensors.push_back(Zeros("model.embed_tokens.weight", {8, 32}));
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    builder.tensors.push_back(Zeros(prefix + "input_layernorm.weight", {32}));
    builder.tensors.push_back(Zeros(prefix + "self_attn.q_proj.weight", {32, 32}));
    builder.tensors.push_back(Zeros(prefix + "self_attn.k_proj.weight", {16, 32}));
    builder.tensors.push_back(Zeros(prefix + "self_attn.v_proj.weight", {16, 32}));
    builder.tensors.push_back(Zeros(prefix + "self_attn.o_proj.weight", {32, 32}));
    builder.tensors.push_back(Zeros(prefix + "post_attention_layernorm.weight", {32}));
    builder.tensors.push_back(Zeros(prefix + "mlp.gate_proj.weight", {64, 32}));
    builder.tensors.push_back(Zeros(prefix + "mlp.up_proj.weight", {64, 32}));
    builder.tensors.push_back(Zeros(prefix + "mlp.down_proj.weight", {32, 64}));
  }
  builder.tensors.push_back(Zeros("model.norm.weight", {32}));
  return builder;
}

JsonFields SmallLlamaConfig() {
  return {
      {"architectures", R"(["LlamaForCausalLM"])"},
      {"model_type", R"("llama")"},
      {"hidden_act", R"("silu")"},
      {"hidden_size", "32"},
      {"intermediate_size", "64"},
      {"num_hidden_layers", "2"},
      {"num_attention_heads", "2"},
      {"num_key_value_heads", "1"},
      {"max_position_embeddings", "128"},
      {"rms_norm_eps", "1e-05"},
      {"rope_theta", "10000.0"},
      {"rope_scaling", "null"},
      {"attention_bias", "false"},
      {"mlp_bias", "false"},
      {"tie_word_embeddings", "true"},
      {"vocab_size", "8"},
      {"bos_token_id", "null"},
      {"eos_token_id", "1"},
  };
}

std::string JsonText(const JsonFields& fields) {
  std::string text = "{";
  for (const auto& [key, value] : fields) {
    text += (text.size() == 1 ? "\"" : ",\n\"") + key + "\": " + value;
  }
  return text + "}";
}

}  // namespace baton::testing
