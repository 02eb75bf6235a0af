// Writes seed corpora for the fuzzers of the model files: valid small files, and each of them with
// one feature more.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/awq_gptq_packer.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/safetensors_builder.h"

namespace {

using baton::testing::GgufBuilder;
using baton::testing::JsonFields;
using baton::testing::SafetensorsBuilder;

void Write(const std::filesystem::path& file, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream stream(file, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
}

// Turns the MLP of every layer into two experts.
void AddExperts(GgufBuilder& builder) {
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const std::string part : {"gate", "up", "down"}) {
      GgufBuilder::Tensor& tensor = builder.FindTensor(layer + "ffn_" + part + ".weight");
      tensor.name = layer + "ffn_" + part + "_exps.weight";
      tensor.shape.insert(tensor.shape.begin(), 2);
      const std::vector<std::byte> one = tensor.data;
      tensor.data.insert(tensor.data.end(), one.begin(), one.end());
    }
    GgufBuilder::Tensor router = builder.FindTensor(layer + "attn_k.weight");
    router.name = layer + "ffn_gate_inp.weight";
    router.data.resize(router.data.size() / 8);
    router.shape = {2, 32};
    builder.tensors.push_back(router);
  }
}

void WriteGguf(const std::filesystem::path& folder) {
  Write(folder / "small", baton::testing::SmallLlamaGguf().Build());
  GgufBuilder sentencepiece = baton::testing::SmallLlamaGguf();
  sentencepiece.Set("tokenizer.ggml.model", std::string("llama"));
  sentencepiece.Set("tokenizer.ggml.bos_token_id", 2u);
  sentencepiece.Set("tokenizer.ggml.scores", std::vector<float>(8, 0.5f));
  sentencepiece.Set("tokenizer.ggml.add_bos_token", true);
  sentencepiece.Set("general.alignment", 32u);
  sentencepiece.Set("llama.rope.scaling.type", std::string("linear"));
  sentencepiece.Set("llama.rope.scaling.factor", 2.0f);
  Write(folder / "sentencepiece", sentencepiece.Build());
  GgufBuilder experts = baton::testing::SmallLlamaGguf();
  experts.Set("llama.expert_count", 2u);
  experts.Set("llama.expert_used_count", 1u);
  AddExperts(experts);
  Write(folder / "experts", experts.Build());
  GgufBuilder yarn = baton::testing::SmallLlamaGguf();
  yarn.Set("llama.rope.scaling.type", std::string("yarn"));
  yarn.Set("llama.rope.scaling.factor", 4.0f);
  yarn.Set("llama.rope.scaling.original_context_length", 32u);
  yarn.Set("llama.attention.sliding_window", 16u);
  yarn.Set("llama.attention.sliding_window_pattern", std::vector<std::int32_t>{1, 0});
  Write(folder / "yarn", yarn.Build());
  // Other types with blocks of 32, whose bytes are whatever they are.
  const std::pair<std::uint32_t, std::size_t> types[] = {{2, 18}, {3, 20},  {6, 22},
                                                         {7, 24}, {20, 18}, {39, 17}};
  GgufBuilder mixed = baton::testing::SmallLlamaGguf();
  std::size_t next = 0;
  for (GgufBuilder::Tensor& tensor : mixed.tensors) {
    if (tensor.shape.size() != 2) continue;
    const auto [type, block_bytes] = types[next++ % std::size(types)];
    tensor.type = type;
    tensor.data.resize(tensor.data.size() / 34 * block_bytes);
  }
  Write(folder / "mixed_types", mixed.Build());
  GgufBuilder header;
  header.Set("general.architecture", std::string("llama"));
  Write(folder / "header", header.Build());
}

void WriteSafetensors(const std::filesystem::path& folder) {
  Write(folder / "small", baton::testing::SmallLlamaSafetensors().Build());
  SafetensorsBuilder one;
  one.tensors = {{.name = "a", .dtype = "F32", .shape = {1}, .data = std::vector<std::byte>(4)},
                 {.name = "b", .dtype = "F16", .shape = {1, 2}, .data = std::vector<std::byte>(4)}};
  Write(folder / "two", one.Build());
  using baton::testing::Int4Packing;
  for (const auto method : {Int4Packing::Method::kAwqGemm, Int4Packing::Method::kGptq}) {
    const bool gptq = method == Int4Packing::Method::kGptq;
    std::mt19937 random(1);
    SafetensorsBuilder packed;
    packed.tensors = baton::testing::PackLinearMap("a", std::vector<float>(8 * 64, 0.5f), 8, 64,
                                                   {.method = method, .act_order = gptq}, random)
                         .tensors;
    Write(folder / (gptq ? "gptq" : "awq"), packed.Build());
  }
}

void WriteConfig(const std::filesystem::path& folder) {
  JsonFields fields = baton::testing::SmallLlamaConfig();
  const auto write = [&](const char* name) {
    const std::string text = baton::testing::JsonText(fields);
    Write(folder / name, std::as_bytes(std::span(text)));
  };
  write("small");
  fields["rope_scaling"] =
      R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64})";
  fields["eos_token_id"] = "[1,2]";
  fields["bos_token"] = R"({"content":"<s>"})";
  fields["chat_template"] = R"([{"name":"default","template":"T"}])";
  fields["partial_rotary_factor"] = "0.5";
  fields["quantization_config"] =
      R"({"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true,"checkpoint_format":"gptq_v2","dynamic":{"-:x":{}}})";
  write("more");
  // The other families, each with the settings that it alone has.
  fields = baton::testing::SmallLlamaConfig();
  fields["sliding_window"] = "16";
  for (const char* family : {"Mistral", "Qwen2", "Qwen3", "Gemma", "SmolLM3"}) {
    fields["architectures"] = std::string("[\"") + family + "ForCausalLM\"]";
    fields["use_sliding_window"] = "true";
    fields["max_window_layers"] = "1";
    fields["no_rope_layers"] = "[1,0]";
    write(family);
  }
  fields["architectures"] = R"(["Gemma3ForCausalLM"])";
  fields["rope_parameters"] =
      R"({"full_attention":{"rope_theta":1e6,"rope_type":"linear","factor":8},"sliding_attention":{"rope_theta":1e4}})";
  fields["layer_types"] = R"(["sliding_attention","full_attention"])";
  fields["query_pre_attn_scalar"] = "24";
  fields["final_logit_softcapping"] = "30.0";
  write("Gemma3");
  fields.erase("layer_types");
  fields["architectures"] = R"(["Gemma2ForCausalLM"])";
  fields["rope_parameters"] = R"({"rope_type":"yarn","factor":4,"beta_fast":16,"truncate":false})";
  fields["attn_logit_softcapping"] = "50.0";
  write("Gemma2");
  fields["architectures"] = R"(["Phi3ForCausalLM"])";
  fields["rope_parameters"] =
      R"({"type":"longrope","short_factor":[1,1,1,1,1,1,1,1],"long_factor":[1,2,3,4,5,6,7,8]})";
  fields["original_max_position_embeddings"] = "32";
  write("Phi3");
  fields["architectures"] = R"(["Qwen3MoeForCausalLM"])";
  fields["rope_parameters"] = R"({"rope_type":"dynamic","factor":2})";
  fields["num_experts"] = "4";
  fields["num_experts_per_tok"] = "2";
  fields["moe_intermediate_size"] = "16";
  fields["norm_topk_prob"] = "true";
  write("Qwen3Moe");
  fields["architectures"] = R"(["MixtralForCausalLM"])";
  fields["num_local_experts"] = "4";
  write("Mixtral");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_seeds DIRECTORY\n");
    return 2;
  }
  const std::filesystem::path root = argv[1];
  WriteGguf(root / "gguf");
  WriteSafetensors(root / "safetensors");
  WriteConfig(root / "config_json");
  return 0;
}
