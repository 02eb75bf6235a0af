// GGUF files of families and settings that tests/golden/arch has no model for, and files that leave
// out what llama.cpp then implies: greedy tokens equal to llama.cpp's own, recorded in
// tests/golden/llama_cpp.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/engine_setups.h"
#include "tests/support/gguf_converter.h"
#include "tests/support/golden_engine.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_paths.h"

namespace baton::testing {
namespace {

using nlohmann::json;

// A file made of a model of tests/golden/arch.
struct Derived {
  std::string name;
  std::string model;
  std::function<void(GgufBuilder&)> edit;
  std::function<void(json& config)> edit_config = {};  // before the conversion
};

// Calls the file's architecture something else.
void Rename(GgufBuilder& gguf, const std::string& from, const std::string& to) {
  for (auto& [key, value] : gguf.metadata) {
    if (key.starts_with(from + ".")) key = to + key.substr(from.size());
  }
  gguf.Set("general.architecture", to);
}

// A tied Llama with a fourth layer, which SmolLM3 does not rotate.
void MakeSmolLm3(GgufBuilder& gguf) {
  Rename(gguf, "llama", "smollm3");
  gguf.RemoveTensor("rope_freqs.weight");
  std::vector<GgufBuilder::Tensor> fourth;
  for (GgufBuilder::Tensor tensor : gguf.tensors) {
    if (!tensor.name.starts_with("blk.0.")) continue;
    tensor.name = "blk.3." + tensor.name.substr(6);
    fourth.push_back(std::move(tensor));
  }
  gguf.tensors.insert(gguf.tensors.end(), fourth.begin(), fourth.end());
  gguf.Set("smollm3.block_count", std::uint32_t{4});
}

// A tied Llama with other names. Gemma scales embeddings by 8: these are made as
// much smaller, or the last token would drown what the layers add.
void MakeGemma(GgufBuilder& gguf) {
  Rename(gguf, "llama", "gemma");
  std::vector<std::byte>& embedding = gguf.FindTensor("token_embd.weight").data;
  for (std::size_t i = 0; i < embedding.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, embedding.data() + i, sizeof(value));
    value /= 8;
    std::memcpy(embedding.data() + i, &value, sizeof(value));
  }
  gguf.RemoveTensor("output.weight");
  for (const char* key : {"attention.sliding_window", "rope.dimension_count", "vocab_size"}) {
    gguf.Remove(std::string("gemma.") + key);
  }
}

void StateLongRope(json& config) {
  config["original_max_position_embeddings"] = 64;
  config["rope_scaling"] = {{"type", "longrope"},
                            {"short_factor", {1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.6, 1.75}},
                            {"long_factor", {1.0, 1.3, 2.1, 4.0, 9.5, 17.0, 30.0, 44.0}}};
}

void SetYarn(GgufBuilder& gguf) {
  gguf.Set("qwen2.rope.scaling.type", std::string("yarn"));
  gguf.Set("qwen2.rope.scaling.factor", 4.0f);
}

std::function<void(GgufBuilder&)> Without(std::vector<std::string> keys) {
  return [keys = std::move(keys)](GgufBuilder& gguf) {
    for (const std::string& key : keys) gguf.Remove(key);
  };
}

std::vector<Derived> AllDerived() {
  return {
      {"smollm3", "llama31", MakeSmolLm3},
      {"gemma", "mistral", MakeGemma},
      {"phi3_longrope", "phi3", [](GgufBuilder&) {}, StateLongRope},
      {"phi3_half_rotated", "phi3",
       [](GgufBuilder& gguf) { gguf.Set("phi3.rope.dimension_count", std::uint32_t{8}); }},
      {"qwen2_yarn", "qwen2", SetYarn},
      {"qwen2_yarn_attn_factor", "qwen2",
       [](GgufBuilder& gguf) {
         SetYarn(gguf);
         gguf.Set("qwen2.rope.scaling.original_context_length", std::uint32_t{64});
         gguf.Set("qwen2.rope.scaling.attn_factor", 1.3f);
       }},
      {"llama_linear_attn_factor", "llama_untied_bias",
       [](GgufBuilder& gguf) {
         gguf.Set("llama.rope.scaling.type", std::string("linear"));
         gguf.Set("llama.rope.scaling.factor", 2.0f);
         gguf.Set("llama.rope.scaling.attn_factor", 1.2f);
       }},
      {"llama_without_defaults", "llama31",
       Without({"llama.rope.freq_base", "llama.vocab_size", "llama.rope.dimension_count"})},
      {"qwen3_without_base", "qwen3", Without({"qwen3.rope.freq_base"})},
      {"gemma2_without_window", "gemma2", Without({"gemma2.attention.sliding_window"})},
      {"gemma2_without_caps", "gemma2",
       Without({"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping"})},
      {"gemma3_without_pattern", "gemma3_text",
       Without({"gemma3.attention.sliding_window_pattern"})},
      {"gemma3_without_window", "gemma3_text", Without({"gemma3.attention.sliding_window"})},
      {"gemma3_without_local_base", "gemma3_text", Without({"gemma3.rope.freq_base_swa"})},
      {"gemma3_linear", "gemma3_text",
       [](GgufBuilder& gguf) {
         gguf.Set("gemma3.rope.scaling.type", std::string("linear"));
         gguf.Set("gemma3.rope.scaling.factor", 8.0f);
       }},
  };
}

class LlamaCppTest : public ::testing::TestWithParam<EngineSetup> {
 protected:
  void SetUp() override {
    const std::string path = GoldenDir() + "/llama_cpp/greedy.json";
    if (!std::filesystem::exists(path) && std::getenv("BATON_GOLDEN_DIR") != nullptr) {
      GTEST_SKIP() << "$BATON_GOLDEN_DIR has no llama_cpp/greedy.json";
    }
    std::ifstream stream(path);
    golden_ = json::parse(stream, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(golden_.is_object()) << path;
  }

  // The derived file, kept in $BATON_KEEP_GGUF where that is set.
  static std::string Make(const Derived& derived, const TempDirectory& temp) {
    const std::string model = BATON_SOURCE_DIR "/tests/golden/arch/" + derived.model;
    std::ifstream stream(model + "/config.json");
    json config = json::parse(stream);
    if (derived.edit_config) derived.edit_config(config);
    temp.Write("model/config.json", config.dump());
    std::filesystem::create_symlink(model + "/model.safetensors",
                                    temp.path() + "/model/model.safetensors");
    auto gguf = ConvertToGguf(temp.path() + "/model", {});
    EXPECT_TRUE(gguf.ok()) << gguf.status();
    if (!gguf.ok()) return "";
    derived.edit(*gguf);
    const std::string name = derived.name + ".gguf";
    const std::string path = temp.Write(name, gguf->Build());
    if (const char* keep = std::getenv("BATON_KEEP_GGUF")) {
      std::filesystem::copy_file(path, std::string(keep) + "/" + name,
                                 std::filesystem::copy_options::overwrite_existing);
    }
    return path;
  }

  json golden_;
};

TEST_P(LlamaCppTest, GreedyTokensAreLlamaCpps) {
  for (const Derived& derived : AllDerived()) {
    SCOPED_TRACE(derived.name);
    const TempDirectory temp;
    auto engine = GoldenEngine::Create(Make(derived, temp), GetParam());
    EXPECT_TRUE(engine.ok()) << engine.status();
    const auto prompts = golden_.find(derived.name);
    EXPECT_TRUE(prompts != golden_.end() && !prompts->empty()) << "not in greedy.json";
    if (!engine.ok() || prompts == golden_.end()) continue;
    for (const json& prompt : *prompts) {
      const auto input = prompt.at("input_ids").get<std::vector<std::int32_t>>();
      const auto expected = prompt.at("greedy_ids").get<std::vector<std::int32_t>>();
      const GoldenEngine::GreedyRequest request{.prompt = input,
                                                .max_tokens = static_cast<int>(expected.size())};
      const auto outputs = (*engine)->Greedy({&request, 1});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_EQ(outputs->at(0), expected) << input.size() << " input ids";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LlamaCppTest, ::testing::ValuesIn(F32Setups()),
                         [](const auto& tested) { return SetupName(tested.param); });

}  // namespace
}  // namespace baton::testing
