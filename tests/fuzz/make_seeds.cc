// Writes seed corpora for the fuzzers of the model files: valid small files, and each of them with
// one feature more.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

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
  write("more");
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
