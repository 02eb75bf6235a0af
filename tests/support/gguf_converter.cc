#include "tests/support/gguf_converter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/safetensors_file.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace baton::testing {
namespace {

using checkpoint::DType;
using nlohmann::json;

struct Matrix {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  std::size_t row_bytes() const { return data.size() / static_cast<std::size_t>(shape[0]); }
};

Matrix ToF32(const Matrix& from) {
  const std::size_t count = from.data.size() / checkpoint::BlockBytes(from.dtype);
  Matrix to{.dtype = DType::kF32, .shape = from.shape, .data = {}};
  to.data.resize(count * sizeof(float));
  checkpoint::DequantizeRow(from.dtype, from.data.data(), static_cast<std::int64_t>(count),
                            reinterpret_cast<float*>(to.data.data()));
  return to;
}

// factor * (values + offset), in F32.
Matrix Adjust(const Matrix& from, float offset, float factor) {
  Matrix to = ToF32(from);
  float* values = reinterpret_cast<float*>(to.data.data());
  for (std::size_t i = 0; i < to.data.size() / sizeof(float); ++i) {
    values[i] = factor * (values[i] + offset);
  }
  return to;
}

// Row i of a head's first half becomes row 2i, row i of its second half row 2i + 1: pairs that rope
// turns together become neighbours (LlamaModel.permute).
Matrix InterleaveHeads(const Matrix& from, int num_heads) {
  Matrix to = from;
  const std::size_t head_rows = static_cast<std::size_t>(from.shape[0]) / num_heads;
  const std::size_t bytes = from.row_bytes();
  for (std::size_t head = 0; head < static_cast<std::size_t>(num_heads); ++head) {
    for (std::size_t i = 0; i < head_rows; ++i) {
      const std::size_t target = i < head_rows / 2 ? 2 * i : 2 * (i - head_rows / 2) + 1;
      std::memcpy(to.data.data() + (head * head_rows + target) * bytes,
                  from.data.data() + (head * head_rows + i) * bytes, bytes);
    }
  }
  return to;
}

std::uint32_t GgmlType(DType dtype) {  // enum ggml_type
  return dtype == DType::kF32 ? 0 : dtype == DType::kF16 ? 1 : 30;
}

// Names below "model.layers.N.", and what they are below "blk.N.".
using Names = std::map<std::string, std::string, std::less<>>;

const Names& LayerNames() {
  static const Names names = {
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.qkv_proj", "attn_qkv"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"mlp.gate_up_proj", "ffn_up"},
      {"mlp.gate", "ffn_gate_inp"},
      {"block_sparse_moe.gate", "ffn_gate_inp"},
  };
  return names;
}

const Names& GemmaNames() {
  static const Names names = {
      {"post_attention_layernorm", "post_attention_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
  };
  return names;
}

const Names& ExpertNames() {
  static const Names names = {{"w1", "ffn_gate"},        {"w2", "ffn_down"},
                              {"w3", "ffn_up"},          {"gate_proj", "ffn_gate"},
                              {"down_proj", "ffn_down"}, {"up_proj", "ffn_up"}};
  return names;
}

const Names& Architectures() {
  static const Names names = {
      {"LlamaForCausalLM", "llama"},   {"MistralForCausalLM", "llama"},
      {"MixtralForCausalLM", "llama"}, {"Qwen2ForCausalLM", "qwen2"},
      {"Qwen3ForCausalLM", "qwen3"},   {"Qwen3MoeForCausalLM", "qwen3moe"},
      {"Gemma2ForCausalLM", "gemma2"}, {"Gemma3ForCausalLM", "gemma3"},
      {"Phi3ForCausalLM", "phi3"},
  };
  return names;
}

class Converter {
 public:
  Converter(json config, const GgufConversion& conversion)
      : config_(std::move(config)), conversion_(conversion) {}

  absl::StatusOr<GgufBuilder> Convert(std::map<std::string, Matrix> tensors) {
    const std::string name = config_.at("architectures").at(0);
    const auto found = Architectures().find(name);
    if (found == Architectures().end()) {
      return absl::InvalidArgumentError(absl::StrCat("no GGUF architecture for ", name));
    }
    if (conversion_.split_experts && name != "MixtralForCausalLM") {
      return absl::UnimplementedError(absl::StrCat(name, " has no experts in the old form"));
    }
    class_ = name;
    arch_ = found->second;
    rope_ = RopeParameters();
    builder_.Set("general.architecture", arch_);
    builder_.Set("general.type", std::string("model"));
    builder_.Set("general.name", std::string("converted"));
    WriteSizes();
    BATON_RETURN_IF_ERROR(WriteRope());
    WriteAttention();
    WriteExperts();
    WriteVocabulary();
    for (const auto& [tensor_name, tensor] : tensors) {
      BATON_RETURN_IF_ERROR(AddTensor(tensor_name, tensor));
    }
    StackExperts();
    return std::move(builder_);
  }

 private:
  bool gemma() const { return arch_ == "gemma2" || arch_ == "gemma3"; }
  bool Has(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }
  int Int(const char* key) const { return config_.at(key).get<int>(); }
  float Float(const char* key) const { return config_.at(key).get<float>(); }
  int HeadDim() const {
    return Has("head_dim") ? Int("head_dim") : Int("hidden_size") / Int("num_attention_heads");
  }
  void Size(const std::string& key, int value) {
    builder_.Set(absl::StrCat(arch_, ".", key), static_cast<std::uint32_t>(value));
  }
  void Number(const std::string& key, float value) {
    builder_.Set(absl::StrCat(arch_, ".", key), value);
  }

  // rope_parameters of new configs; of old ones rope_scaling with rope_theta added.
  json RopeParameters() const {
    if (Has("rope_parameters")) return config_.at("rope_parameters");
    json rope = Has("rope_scaling") ? config_.at("rope_scaling") : json::object();
    if (Has("rope_theta")) rope["rope_theta"] = config_.at("rope_theta");
    if (!rope.contains("rope_type") && rope.contains("type")) rope["rope_type"] = rope.at("type");
    return rope;
  }
  std::string RopeType() const { return rope_.value("rope_type", "default"); }
  int OriginalContext() const {
    return rope_.contains("original_max_position_embeddings")
               ? rope_.at("original_max_position_embeddings").get<int>()
               : Int("original_max_position_embeddings");
  }

  void WriteSizes() {
    Size("context_length", Int("max_position_embeddings"));
    Size("embedding_length", Int("hidden_size"));
    Size("block_count", Int("num_hidden_layers"));
    Size("feed_forward_length", Int("intermediate_size"));
    Size("attention.head_count", Int("num_attention_heads"));
    Size("attention.head_count_kv", Int("num_key_value_heads"));
    Number("attention.layer_norm_rms_epsilon", Float("rms_norm_eps"));
    if (Has("head_dim") && arch_ != "phi3") {
      Size("attention.key_length", Int("head_dim"));
      Size("attention.value_length", Int("head_dim"));
    }
    if (arch_ == "llama") Size("vocab_size", Int("vocab_size"));
    if (arch_ == "llama" || arch_ == "phi3") Size("rope.dimension_count", HeadDim());
  }

  absl::Status WriteRope() {
    if (arch_ == "gemma2") return absl::OkStatus();  // nothing is written; 10000 is implied
    Number("rope.freq_base", rope_.at("rope_theta").get<float>());
    if (Has("rope_local_base_freq")) Number("rope.freq_base_swa", Float("rope_local_base_freq"));
    const std::string type = RopeType();
    if (arch_ == "phi3") {
      Size("rope.scaling.original_context_length", OriginalContext());
      if (rope_.contains("long_factor")) WriteLongRope();
    } else if (type == "linear" || type == "yarn") {
      builder_.Set(absl::StrCat(arch_, ".rope.scaling.type"), type);
      Number("rope.scaling.factor", rope_.at("factor").get<float>());
      if (type == "yarn") Size("rope.scaling.original_context_length", OriginalContext());
    } else if (type == "llama3") {
      WriteLlama3Factors();
    } else if (type != "default") {
      return absl::UnimplementedError(absl::StrCat("GGUF has no rope scaling ", type));
    }
    return absl::OkStatus();
  }

  void WriteLongRope() {
    const double original = OriginalContext();
    const double scale = Int("max_position_embeddings") / original;
    Number("rope.scaling.attn_factor",
           static_cast<float>(scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1));
    AddVector("rope_factors_long.weight", rope_.at("long_factor").get<std::vector<float>>());
    AddVector("rope_factors_short.weight", rope_.at("short_factor").get<std::vector<float>>());
  }

  void WriteLlama3Factors() {
    const double base = rope_.at("rope_theta"), factor = rope_.at("factor");
    const double low = rope_.at("low_freq_factor"), high = rope_.at("high_freq_factor");
    const double original = OriginalContext();
    std::vector<float> factors;
    for (int i = 0; i < HeadDim(); i += 2) {
      const double turns = original / (2 * std::numbers::pi * std::pow(base, 1.0 * i / HeadDim()));
      const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
    AddVector("rope_freqs.weight", factors);
  }

  void WriteAttention() {
    if (arch_ == "phi3" || (class_ == "MistralForCausalLM" && Has("sliding_window")) || gemma()) {
      Size("attention.sliding_window", Has("sliding_window") ? Int("sliding_window") : 0);
    }
    if (arch_ == "gemma2") {
      Number("attn_logit_softcapping", Float("attn_logit_softcapping"));
      Number("final_logit_softcapping", Float("final_logit_softcapping"));
    }
    if (arch_ == "gemma3" && Has("sliding_window_pattern") && Int("sliding_window_pattern") != 6) {
      Size("attention.sliding_window_pattern", Int("sliding_window_pattern"));
    }
    // 1 / sqrt(head_dim) is implied.
    if (Has("query_pre_attn_scalar")) {
      query_factor_ = std::sqrt(static_cast<float>(HeadDim()) / Float("query_pre_attn_scalar"));
    }
  }

  void WriteExperts() {
    const char* count = Has("num_local_experts") ? "num_local_experts" : "num_experts";
    if (!Has(count)) return;
    Size("expert_count", Int(count));
    Size("expert_used_count", Int("num_experts_per_tok"));
    if (Has("moe_intermediate_size")) {
      Size("expert_feed_forward_length", Int("moe_intermediate_size"));
    }
  }

  void WriteVocabulary() {
    std::vector<std::string> tokens;
    for (int id = 0; id < Int("vocab_size"); ++id) tokens.push_back(absl::StrCat("t", id));
    builder_.Set("tokenizer.ggml.model", std::string("gpt2"));
    builder_.Set("tokenizer.ggml.pre", std::string("gpt-2"));
    builder_.Set("tokenizer.ggml.token_type", std::vector<std::int32_t>(tokens.size(), 1));
    builder_.Set("tokenizer.ggml.tokens", std::move(tokens));
    builder_.Set("tokenizer.ggml.merges", std::vector<std::string>());
    builder_.Set("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  }

  void AddVector(const std::string& name, const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    Write(name, {.dtype = DType::kF32,
                 .shape = {static_cast<std::int64_t>(values.size())},
                 .data = {bytes.begin(), bytes.end()}});
  }

  void Write(const std::string& name, const Matrix& tensor) {
    const bool f32 = conversion_.matrices == GgufMatrices::kF32 || tensor.shape.size() == 1 ||
                     name.find("ffn_gate_inp") != std::string::npos;
    const Matrix written = f32 ? ToF32(tensor) : tensor;
    builder_.tensors.push_back({.name = name,
                                .shape = written.shape,
                                .type = GgmlType(written.dtype),
                                .data = written.data});
  }

  absl::Status AddTensor(const std::string& name, const Matrix& tensor) {
    constexpr std::string_view kLayers = "model.layers.";
    if (name == "model.embed_tokens.weight") {
      Write("token_embd.weight", tensor);
    } else if (name == "lm_head.weight") {
      Write("output.weight", tensor);
    } else if (name == "model.norm.weight") {
      Write("output_norm.weight", Norm(tensor));
    } else if (name.starts_with(kLayers)) {
      const std::size_t dot = name.find('.', kLayers.size());
      const std::string layer = name.substr(kLayers.size(), dot - kLayers.size());
      return AddLayerTensor(layer, name.substr(dot + 1), tensor);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("tensor without a GGUF name: ", name));
    }
    return absl::OkStatus();
  }

  Matrix Norm(const Matrix& tensor) const { return Adjust(tensor, gemma() ? 1.0f : 0.0f, 1.0f); }

  // `rest` is "self_attn.q_proj.weight" and the like.
  absl::Status AddLayerTensor(const std::string& layer, const std::string& rest,
                              const Matrix& tensor) {
    if (rest.find("experts.") != std::string::npos) return KeepExpert(layer, rest, tensor);
    const std::size_t dot = rest.rfind('.');
    const std::string stem = rest.substr(0, dot), kind = rest.substr(dot);
    const auto gemma_name = GemmaNames().find(stem);
    const bool of_gemma = gemma() && gemma_name != GemmaNames().end();
    const auto found = LayerNames().find(stem);
    if (!of_gemma && found == LayerNames().end()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor without a GGUF name: ", rest));
    }
    const std::string name = of_gemma ? gemma_name->second : found->second;
    Write(absl::StrCat("blk.", layer, ".", name, kind), Reorder(name, tensor));
    return absl::OkStatus();
  }

  Matrix Reorder(const std::string& name, const Matrix& tensor) const {
    const bool query = name == "attn_q", key = name == "attn_k";
    if (arch_ == "llama" && (query || key)) {
      return InterleaveHeads(tensor, Int(query ? "num_attention_heads" : "num_key_value_heads"));
    }
    if (name.ends_with("_norm")) {
      const Matrix norm = Norm(tensor);
      return name == "attn_q_norm" ? Adjust(norm, 0, query_factor_) : norm;
    }
    if (query && arch_ == "gemma2" && query_factor_ != 1) return Adjust(tensor, 0, query_factor_);
    return tensor;
  }

  // `rest` is "mlp.experts.7.gate_proj.weight" and the like.
  absl::Status KeepExpert(const std::string& layer, const std::string& rest, const Matrix& tensor) {
    const std::vector<std::string> parts = absl::StrSplit(rest, '.');
    const auto found = parts.size() == 5 ? ExpertNames().find(parts[3]) : ExpertNames().end();
    if (found == ExpertNames().end()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor without a GGUF name: ", rest));
    }
    const std::string name = absl::StrCat("blk.", layer, ".", found->second);
    if (conversion_.split_experts) {
      Write(absl::StrCat(name, ".", parts[2], ".weight"), tensor);
    } else {
      experts_[name][std::stoi(parts[2])] = tensor;
    }
    return absl::OkStatus();
  }

  void StackExperts() {
    for (const auto& [name, experts] : experts_) {
      Matrix stack = experts.begin()->second;
      stack.data.clear();
      stack.shape.insert(stack.shape.begin(), static_cast<std::int64_t>(experts.size()));
      for (const auto& [index, expert] : experts) {
        stack.data.insert(stack.data.end(), expert.data.begin(), expert.data.end());
      }
      Write(absl::StrCat(name, "_exps.weight"), stack);
    }
  }

  const json config_;
  const GgufConversion conversion_;
  std::string class_, arch_;
  json rope_;
  float query_factor_ = 1.0f;
  std::map<std::string, std::map<int, Matrix>> experts_;  // by name without "_exps", by index
  GgufBuilder builder_;
};

absl::StatusOr<std::map<std::string, Matrix>> ReadTensors(const std::string& directory) {
  std::map<std::string, Matrix> tensors;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".safetensors") continue;
    BATON_ASSIGN_OR_RETURN(const auto file, checkpoint::MappedFile::Open(entry.path().string()));
    BATON_ASSIGN_OR_RETURN(const auto stored, checkpoint::ParseSafetensors(file->bytes()));
    for (const auto& [name, tensor] : stored) {
      if (!tensor.dtype.has_value()) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": type ", tensor.type_name));
      }
      tensors[name] = {.dtype = *tensor.dtype,
                       .shape = tensor.shape,
                       .data = {tensor.data.begin(), tensor.data.end()}};
    }
  }
  return tensors;
}

}  // namespace

absl::StatusOr<GgufBuilder> ConvertToGguf(const std::string& directory,
                                          const GgufConversion& conversion) {
  BATON_ASSIGN_OR_RETURN(auto tensors, ReadTensors(directory));
  std::ifstream stream(directory + "/config.json");
  try {
    return Converter(json::parse(stream), conversion).Convert(std::move(tensors));
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(directory, "/config.json: ", error.what()));
  }
}

}  // namespace baton::testing
