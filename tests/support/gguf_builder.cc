#include "tests/support/gguf_builder.h"

#include <algorithm>
#include <span>
#include <type_traits>

#include "common/check.h"

namespace baton::testing {
namespace {

constexpr std::size_t kAlignment = 32;
constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ8_0 = 8;

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    Bytes(std::as_bytes(std::span(&value, 1)));
  }
  void Text(std::string_view text) {
    Put(std::uint64_t{text.size()});
    Bytes(std::as_bytes(std::span(text)));
  }
  void Bytes(std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  void Align() { out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment); }

  std::vector<std::byte> out;
};

template <typename T>
constexpr std::uint32_t TypeId() {
  if constexpr (std::is_same_v<T, std::uint32_t>) return 4;
  if constexpr (std::is_same_v<T, std::int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::string>) return 8;
  return 10;  // uint64
}

template <typename T>
void PutScalar(Writer& writer, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    writer.Text(value);
  } else {
    writer.Put(value);
  }
}

struct PutValue {
  Writer& writer;
  template <typename T>
  void operator()(const T& value) const {
    writer.Put(TypeId<T>());
    PutScalar(writer, value);
  }
  template <typename T>
  void operator()(const std::vector<T>& values) const {
    writer.Put(std::uint32_t{9});
    writer.Put(TypeId<T>());
    writer.Put(std::uint64_t{values.size()});
    for (const T& value : values) PutScalar(writer, value);
  }
};

}  // namespace

void GgufBuilder::Set(const std::string& key, Value value) {
  Remove(key);
  metadata.emplace_back(key, std::move(value));
}

void GgufBuilder::Remove(const std::string& key) {
  std::erase_if(metadata, [&](const auto& pair) { return pair.first == key; });
}

GgufBuilder::Tensor& GgufBuilder::FindTensor(std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  BATON_CHECK(found != tensors.end(), "the builder has no such tensor");
  return *found;
}

void GgufBuilder::RemoveTensor(std::string_view name) {
  std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
}

std::vector<std::byte> GgufBuilder::Build() const {
  Writer writer;
  writer.Put(magic);
  writer.Put(version);
  writer.Put(num_tensors >= 0 ? num_tensors : static_cast<std::int64_t>(tensors.size()));
  writer.Put(num_pairs >= 0 ? num_pairs : static_cast<std::int64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    writer.Text(key);
    std::visit(PutValue{writer}, value);
  }
  std::size_t next = 0;
  for (const Tensor& tensor : tensors) {
    writer.Text(tensor.name);
    writer.Put(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) writer.Put(*size);
    writer.Put(tensor.type);
    writer.Put(tensor.offset >= 0 ? tensor.offset : static_cast<std::int64_t>(next));
    next = (next + tensor.data.size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (const Tensor& tensor : tensors) {
    writer.Align();
    writer.Bytes(tensor.data);
  }
  return std::move(writer.out);
}

namespace {

GgufBuilder::Tensor Matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
  std::vector<std::byte> data(static_cast<std::size_t>(rows * columns / 32 * 34));
  for (std::size_t i = 0; i < data.size(); ++i) {
    // Scale 2^-6 in half precision, then small quants.
    data[i] = static_cast<std::byte>(i % 34 == 0 ? 0x00 : i % 34 == 1 ? 0x24 : i % 7);
  }
  return {.name = name, .shape = {rows, columns}, .type = kQ8_0, .data = std::move(data)};
}

GgufBuilder::Tensor Norm(const std::string& name, std::int64_t size) {
  const std::vector<float> ones(static_cast<std::size_t>(size), 1.0f);
  const auto bytes = std::as_bytes(std::span(ones));
  return {.name = name, .shape = {size}, .type = kF32, .data = {bytes.begin(), bytes.end()}};
}

void AddLayer(GgufBuilder& builder, int layer) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  builder.tensors.push_back(Norm(prefix + "attn_norm.weight", 32));
  builder.tensors.push_back(Matrix(prefix + "attn_q.weight", 32, 32));
  builder.tensors.push_back(Matrix(prefix + "attn_k.weight", 16, 32));
  builder.tensors.push_back(Matrix(prefix + "attn_v.weight", 16, 32));
  builder.tensors.push_back(Matrix(prefix + "attn_output.weight", 32, 32));
  builder.tensors.push_back(Norm(prefix + "ffn_norm.weight", 32));
  builder.tensors.push_back(Matrix(prefix + "ffn_gate.weight", 64, 32));
  builder.tensors.push_back(Matrix(prefix + "ffn_up.weight", 64, 32));
  builder.tensors.push_back(Matrix(prefix + "ffn_down.weight", 32, 64));
}

}  // namespace

GgufBuilder SmallLlamaGguf() {
  GgufBuilder builder;
  builder.metadata = {
      {"general.architecture", std::string("llama")},
      {"general.name", std::string("small")},
      {"llama.block_count", std::uint32_t{2}},
      {"llama.context_length", std::uint32_t{128}},
      {"llama.embedding_length", std::uint32_t{32}},
      {"llama.feed_forward_length", std::uint32_t{64}},
      {"llama.attention.head_count", std::uint32_t{2}},
      {"llama.attention.head_count_kv", std::uint32_t{1}},
      {"llama.attention.layer_norm_rms_epsilon", 1e-5f},
      {"llama.rope.freq_base", 10000.0f},
      {"llama.rope.dimension_count", std::uint32_t{16}},
      {"tokenizer.ggml.model", std::string("gpt2")},
      {"tokenizer.ggml.pre", std::string("smollm")},
      {"tokenizer.ggml.tokens",
       std::vector<std::string>{"<|end|>", "<|im_end|>", "a", "b", "c", "ab", "d", "e"}},
      {"tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 3, 1, 1, 1, 1, 1, 1}},
      {"tokenizer.ggml.merges", std::vector<std::string>{"a b"}},
      {"tokenizer.ggml.eos_token_id", std::uint32_t{1}},
      {"tokenizer.chat_template", std::string("{{ messages[0].content }}")},
  };
  builder.tensors.push_back(Matrix("token_embd.weight", 8, 32));
  for (int layer = 0; layer < 2; ++layer) AddLayer(builder, layer);
  builder.tensors.push_back(Norm("output_norm.weight", 32));
  return builder;
}

}  // namespace baton::testing
