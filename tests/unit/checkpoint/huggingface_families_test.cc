// What each family makes of the keys of a config.json, and of the tensors beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface_config.h"
#include "tests/support/metadata_text.h"
#include "tests/support/safetensors_builder.h"
#include "tests/support/temp_directory.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;
using testing::JsonFields;
using testing::MetadataText;
using testing::SafetensorsBuilder;

// A config of two layers of 32, two heads of 16, one KV head; `keys` replace its own, and an empty
// one is left out.
JsonFields Config(const std::string& architecture,
                  const std::vector<std::pair<std::string, std::string>>& keys) {
  JsonFields fields = testing::SmallLlamaConfig();
  fields.erase("model_type");
  fields["architectures"] = "[\"" + architecture + "\"]";
  for (const auto& [key, value] : keys) {
    if (value.empty()) {
      fields.erase(key);
    } else {
      fields[key] = value;
    }
  }
  return fields;
}

struct Reading {
  std::string name;
  std::string architecture;
  std::vector<std::pair<std::string, std::string>> keys;
  std::string text;  // part of MetadataText, or of the refusal
};

void PrintTo(const Reading& reading, std::ostream* out) { *out << reading.name; }

const char* const kLlama = "LlamaForCausalLM";
const char* const kMistral = "MistralForCausalLM";
const char* const kMixtral = "MixtralForCausalLM";
const char* const kQwen2 = "Qwen2ForCausalLM";
const char* const kQwen3 = "Qwen3ForCausalLM";
const char* const kMoe = "Qwen3MoeForCausalLM";
const char* const kPhi = "Phi3ForCausalLM";
const char* const kGemma2 = "Gemma2ForCausalLM";
const char* const kGemma3 = "Gemma3ForCausalLM";
const char* const kSmol = "SmolLM3ForCausalLM";
const std::string kGone;
// A longrope table for heads of 16.
const std::string kEight = "[1,2,3,4,5,6,7,8]";

const Reading kReadings[] = {
    // Keys left out get the default of the family's own class; keys that are null get none.
    {"MistralWindowLeftOut", kMistral, {{"max_position_embeddings", "8192"}}, "window 4096 in 11"},
    {"MistralWindowNull", kMistral, {{"sliding_window", "null"}}, "eps 1e-05, rope 10000 of 16"},
    {"MistralKvHeadsLeftOut",
     kMistral,
     {{"num_key_value_heads", kGone}},
     "KV heads do not divide the heads: 2 heads, 8 KV heads"},
    {"MistralKvHeadsNull", kMistral, {{"num_key_value_heads", "null"}}, "2/2 heads"},
    {"MixtralThetaLeftOut", kMixtral, {{"rope_theta", kGone}}, "rope 1e+06 of 16"},
    {"MixtralExpertsLeftOut", kMixtral, {}, "2 of 8 experts of 64"},
    {"Qwen3HeadSizeLeftOut", kQwen3, {}, "2/1 heads of 128"},
    {"Qwen3HeadSizeNull", kQwen3, {{"head_dim", "null"}}, "2/1 heads of 16"},
    {"MoeKeysLeftOut",
     kMoe,
     {{"tie_word_embeddings", kGone}},
     "8 of 128 experts of 768, not normalized"},
    {"Gemma2KeysLeftOut",
     kGemma2,
     {{"tie_word_embeddings", kGone}, {"rms_norm_eps", kGone}},
     "vocabulary 8 tied, context 128\n"
     "eps 1e-06, norm offset 1, post norms, embedding scale 5.65685, attention scale 0.0625, "
     "caps 50 30, rope 10000 of 256"},
    {"Gemma2CapsNull",
     kGemma2,
     {{"attn_logit_softcapping", "null"}, {"final_logit_softcapping", "null"}},
     "attention scale 0.0625, rope"},
    {"Gemma3BasesLeftOut",
     kGemma3,
     {{"rope_theta", kGone}, {"sliding_window", "16"}},
     "rope 1e+06 of 256\nwindow 16 in 11, rope there 10000 of 256"},
    {"SmolTiedLeftOut", kSmol, {{"tie_word_embeddings", kGone}}, "vocabulary 8 tied"},
    {"GemmaActivation", kGemma2, {{"hidden_act", "\"silu\""}}, "gelu-tanh"},
    {"GemmaExactGelu", kGemma2, {{"hidden_activation", "\"gelu\""}}, "gelu, vocabulary"},
    {"LlamaGelu", kLlama, {{"hidden_act", "\"gelu_new\""}}, "gelu-tanh, vocabulary"},
    {"QwenBiasesAlways", kQwen2, {{"attention_bias", "false"}}, "qkv bias, rope"},
    {"LlamaBiases",
     kLlama,
     {{"attention_bias", "true"}, {"mlp_bias", "true"}},
     "qkv bias, o bias, mlp bias"},
    // Windows.
    {"QwenWindowOff",
     kQwen2,
     {{"sliding_window", "16"}, {"max_window_layers", "0"}},
     "eps 1e-05, qkv bias, rope 10000 of 16"},
    {"QwenWindowFromLayer",
     kQwen2,
     {{"use_sliding_window", "true"}, {"sliding_window", "16"}, {"max_window_layers", "1"}},
     "window 16 in 01"},
    {"QwenWindowOfNoLayer",
     kQwen2,
     {{"use_sliding_window", "true"}, {"sliding_window", "16"}, {"max_window_layers", "2"}},
     "eps 1e-05, qkv bias, rope 10000 of 16"},
    {"MoeWindow",
     kMoe,
     {{"use_sliding_window", "true"}, {"sliding_window", "16"}},
     "window 16 in 11"},
    {"LayerTypesComeFirst",
     kGemma2,
     {{"sliding_window", "16"}, {"layer_types", R"(["full_attention","sliding_attention"])"}},
     "window 16 in 01"},
    {"LayerTypesOfWrongLength",
     kGemma2,
     {{"layer_types", R"(["full_attention"])"}},
     "'layer_types': 1 entries for 2 layers"},
    {"LayerTypesUnknown",
     kQwen3,
     {{"layer_types", R"(["full_attention","linear_attention"])"}},
     "unsupported layer type: 'linear_attention'"},
    {"LayerTypesWithoutWindow",
     kQwen3,
     {{"layer_types", R"(["full_attention","sliding_attention"])"}},
     "'layer_types' names sliding_attention, but there is no 'sliding_window' in use"},
    {"LayerTypesOfMistral",
     kMistral,
     {{"sliding_window", "16"}, {"layer_types", R"(["full_attention","sliding_attention"])"}},
     "unsupported: 'layer_types' differs"},
    {"WindowOfZero", kMistral, {{"sliding_window", "0"}}, "'sliding_window' out of range: 0"},
    {"WindowBeyondContext", kMistral, {{"sliding_window", "128"}}, "rope 10000 of 16"},
    {"WindowBeyondContextWithItsOwnRope",
     kGemma3,
     {{"sliding_window", "128"}},
     "window 128 in 11, rope there 10000 of 256"},
    {"Gemma3Pattern",
     kGemma3,
     {{"sliding_window", "16"}, {"sliding_window_pattern", "2"}},
     "window 16 in 10, rope there"},
    {"PatternOfZero",
     kGemma3,
     {{"sliding_window_pattern", "0"}},
     "'sliding_window_pattern' out of range: 0"},
    // Layers without rope.
    {"SmolByInterval", kSmol, {{"no_rope_layer_interval", "2"}}, "no rope in 01"},
    {"SmolByList", kSmol, {{"no_rope_layers", "[0,1,1]"}}, "no rope in 10"},
    {"SmolListTooShort",
     kSmol,
     {{"no_rope_layers", "[0]"}},
     "'no_rope_layers': 1 entries for 2 layers"},
    {"SmolIntervalOfZero",
     kSmol,
     {{"no_rope_layer_interval", "0"}},
     "'no_rope_layer_interval' out of range: 0"},
    {"SmolWindow",
     kSmol,
     {{"no_rope_layers", "[1,0]"}, {"use_sliding_window", "true"}, {"sliding_window", "16"}},
     "window 16 in 01"},
    // Experts.
    {"ExpertsUnderTheOtherName",
     kMoe,
     {{"num_local_experts", "4"}, {"num_experts_per_tok", "2"}},
     "2 of 4 experts"},
    {"NoExperts", kMixtral, {{"num_local_experts", "0"}}, "number of experts out of range: 0"},
    {"AbsurdExperts",
     kMixtral,
     {{"num_local_experts", "99999999999"}},
     "number of experts out of range: -1"},
    {"ExpertsTimesLayers",
     kMixtral,
     {{"num_local_experts", "4096"}, {"num_hidden_layers", "1024"}},
     "number of experts out of range: 4096 in each of 1024 layers"},
    {"MoreExpertsPerToken",
     kMixtral,
     {{"num_experts_per_tok", "9"}},
     "experts per token out of range: 9, must be 1..8"},
    {"PlainLayersAmongExperts",
     kMoe,
     {{"mlp_only_layers", "[0]"}},
     "unsupported: mlp_only_layers is '[0]', must be [] in architecture qwen3_moe"},
    {"EveryOtherLayerHasExperts",
     kMoe,
     {{"decoder_sparse_step", "2"}},
     "unsupported: decoder_sparse_step is '2'"},
    // Gemma's numbers.
    {"QueryScalar", kGemma2, {{"query_pre_attn_scalar", "4"}}, "attention scale 0.5,"},
    {"QueryScalarOfZero",
     kGemma2,
     {{"query_pre_attn_scalar", "0"}},
     "'query_pre_attn_scalar' out of range: 0"},
    {"NegativeCap",
     kGemma2,
     {{"attn_logit_softcapping", "-1"}},
     "'attn_logit_softcapping' out of range: -1"},
    {"Bidirectional",
     kGemma3,
     {{"use_bidirectional_attention", "true"}},
     "unsupported: use_bidirectional_attention is 'true'"},
    {"Encoder",
     kLlama,
     {{"is_encoder_decoder", "true"}},
     "unsupported: is_encoder_decoder is 'true'"},
    // Rope.
    {"Dynamic",
     kLlama,
     {{"rope_scaling", R"({"type":"dynamic","factor":2})"}},
     "dynamic 2 from 128"},
    {"DynamicBelowOne",
     kLlama,
     {{"rope_scaling", R"({"type":"dynamic","factor":0.5})"}},
     "dynamic rope scaling out of range: factor 0.5"},
    {"LinearScalesTheContext",
     kLlama,
     {{"rope_scaling", R"({"type":"linear","factor":2.5})"}},
     "context 320\n"},
    {"LinearOfGemma3DoesNot",
     kGemma3,
     {{"rope_scaling", R"({"type":"linear","factor":8})"}},
     "context 128\neps 1e-05, norm offset 1, qk norm, post norms, embedding scale 5.65685, "
     "attention scale 0.0625, rope 10000 of 256 linear 8\nwindow 4096 in 11"},
    {"LinearBeyondAllBounds",
     kLlama,
     {{"rope_scaling", R"({"type":"linear","factor":1e30})"}},
     "context length out of range: 1.28e+32 after rope scaling by 1e+30"},
    {"YarnOfTheWholeContext",
     kLlama,
     {{"rope_scaling", R"({"type":"yarn","factor":4})"}},
     "context 512\neps 1e-05, rope 10000 of 16 yarn 4 from 128 beta 1..32"},
    {"YarnByContexts",
     kLlama,
     {{"rope_scaling", R"({"type":"yarn","original_max_position_embeddings":32})"}},
     "context 128\neps 1e-05, rope 10000 of 16 yarn 4 from 32"},
    {"YarnInFull",
     kLlama,
     {{"rope_scaling",
       R"({"rope_type":"yarn","factor":4,"attention_factor":1.5,"beta_fast":16,"beta_slow":2,
           "mscale":1,"mscale_all_dim":0.5,"truncate":false})"}},
     "yarn 4 from 128 beta 2..16 exact mscale 1/0.5 times 1.5"},
    {"YarnBetaOfZeroIsLeftOut",
     kLlama,
     {{"rope_scaling", R"({"rope_type":"yarn","factor":4,"beta_fast":0})"}},
     "beta 1..32"},
    {"YarnNegativeBeta",
     kLlama,
     {{"rope_scaling", R"({"rope_type":"yarn","factor":4,"beta_fast":-1})"}},
     "yarn's beta_fast out of range: -1"},
    {"YarnBaseOfOne",
     kLlama,
     {{"rope_theta", "1"}, {"rope_scaling", R"({"rope_type":"yarn","factor":4})"}},
     "rope base out of range: 1, yarn needs one above 1"},
    {"AttentionFactorOfZero",
     kLlama,
     {{"rope_scaling", R"({"rope_type":"yarn","factor":4,"attention_factor":0})"}},
     "'attention_factor' out of range: 0"},
    {"LongRope",
     kPhi,
     {{"original_max_position_embeddings", "32"},
      {"rope_scaling",
       R"({"type":"longrope","short_factor":)" + kEight + R"(,"long_factor":)" + kEight + "}"}},
     "context 128\neps 1e-05, rope 10000 of 16 longrope 4 from 32 short 1..8 of 8 long 1..8 of 8"},
    {"LongRopeCalledYarn",
     kPhi,
     {{"rope_scaling",
       R"({"type":"yarn","short_factor":)" + kEight + R"(,"long_factor":)" + kEight + "}"}},
     "longrope 0.03125 from 4096"},
    {"LongRopeOfHalfTheHead",
     kPhi,
     {{"partial_rotary_factor", "0.5"},
      {"rope_scaling",
       R"({"type":"longrope","short_factor":)" + kEight + R"(,"long_factor":)" + kEight + "}"}},
     "short rope factors: 8 of them, must be 4, half of the rotated dimensions"},
    {"LongRopeWithoutTable",
     kPhi,
     {{"rope_scaling", R"({"type":"longrope","long_factor":)" + kEight + "}"}},
     "missing key: 'short_factor', which longrope scaling needs"},
    {"LongRopeTableOfText",
     kPhi,
     {{"rope_scaling", R"({"type":"longrope","short_factor":["1"],"long_factor":[]})"}},
     "'short_factor': wrong type, must be an array of numbers"},
    {"LongRopeFactorOfZero",
     kPhi,
     {{"rope_scaling",
       R"({"type":"longrope","short_factor":[0,2,3,4,5,6,7,8],"long_factor":)" + kEight + "}"}},
     "short rope factors out of range: 0, must be positive"},
    {"LongRopeScales",
     kPhi,
     {{"rope_scaling", R"({"type":"longrope","short_mscale":1.2})"}},
     "unsupported: short_mscale is '1.2'"},
    {"AxesOfRope",
     kQwen2,
     {{"rope_scaling", R"({"type":"default","mrope_section":[8,8]})"}},
     "unsupported: mrope_section is '[8,8]'"},
    {"Ministral3",
     kMistral,
     {{"model_type", "\"ministral3\""}},
     "unsupported: model_type is '\\\"ministral3\\\"', must be \"mistral\""},
    {"BothFormsDiffer",
     kLlama,
     {{"rope_parameters", R"({"rope_theta":5000,"rope_type":"default"})"},
      {"rope_scaling", R"({"rope_type":"yarn","factor":4})"}},
     "'rope_parameters' and 'rope_scaling' are both given and differ"},
    {"EmptyFormsCountForNone",
     kLlama,
     {{"rope_parameters", "{}"}, {"rope_scaling", R"({"rope_type":"linear","factor":2})"}},
     "linear 2"},
    {"RopePerLayerType",
     kQwen3,
     {{"use_sliding_window", "true"},
      {"sliding_window", "16"},
      {"max_window_layers", "1"},
      {"head_dim", "16"},
      {"rope_parameters",
       R"({"full_attention":{"rope_theta":5000},"sliding_attention":{"rope_theta":70}})"}},
     "rope 5000 of 16\nwindow 16 in 01, rope there 70 of 16"},
    {"RopePerLayerTypeWithoutWindows",
     kQwen3,
     {{"head_dim", "16"},
      {"rope_parameters",
       R"({"full_attention":{"rope_theta":5000},"sliding_attention":{"rope_theta":70}})"}},
     "rope 5000 of 16"},
};

class HuggingFaceFamilyTest : public ::testing::TestWithParam<Reading> {};

TEST_P(HuggingFaceFamilyTest, ReadsTheKeysAsTransformersDoes) {
  const auto object =
      JsonObject::Parse(testing::JsonText(Config(GetParam().architecture, GetParam().keys)));
  ASSERT_TRUE(object.ok()) << object.status();

  const auto config = ReadHuggingFaceConfig(*object);

  const std::string text =
      config.ok() ? MetadataText(config->metadata) : std::string(config.status().message());
  EXPECT_THAT(text, HasSubstr(GetParam().text));
  if (config.ok() && text.find("\nwindow") != std::string::npos) {
    EXPECT_NE(GetParam().text.find("window"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, HuggingFaceFamilyTest, ::testing::ValuesIn(kReadings),
                         [](const auto& reading) { return reading.param.name; });

// The small llama as a Gemma 3 that sees images: other names, norms and a tensor of its vision.
SafetensorsBuilder ImageModel(const std::string& model_prefix) {
  SafetensorsBuilder builder;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
    std::size_t elements = 1;
    for (const std::int64_t size : shape) elements *= static_cast<std::size_t>(size);
    builder.tensors.push_back({.name = std::move(name),
                               .dtype = "BF16",
                               .shape = std::move(shape),
                               .data = std::vector<std::byte>(2 * elements)});
  };
  for (const SafetensorsBuilder::Tensor& tensor : testing::SmallLlamaSafetensors().tensors) {
    add(model_prefix + tensor.name.substr(std::string("model.").size()), tensor.shape);
  }
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = absl::StrCat(model_prefix, "layers.", layer, ".");
    add(prefix + "pre_feedforward_layernorm.weight", {32});
    add(prefix + "post_feedforward_layernorm.weight", {32});
    add(prefix + "self_attn.q_norm.weight", {16});
    add(prefix + "self_attn.k_norm.weight", {16});
  }
  return builder;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenImageModel(const SafetensorsBuilder& weights) {
  const testing::TempDirectory directory;
  JsonFields fields = Config("Gemma3ForConditionalGeneration", {{"head_dim", "16"}});
  const std::string text = testing::JsonText(fields);
  directory.Write("config.json", R"({"architectures": ["Gemma3ForConditionalGeneration"],
                                     "vision_config": {}, "text_config": )" +
                                     text + "}");
  directory.Write("model.safetensors", weights.Build());
  return Checkpoint::Open(directory.path());
}

TEST(GemmaImageModelTest, TheTextModelIsFoundUnderEveryPrefix) {
  for (const std::string prefix : {"language_model.model.", "model.language_model.", "model."}) {
    SCOPED_TRACE(prefix);
    SafetensorsBuilder weights = ImageModel(prefix);
    for (const char* vision : {"vision_tower.patch.weight", "model.vision_tower.patch.weight",
                               "multi_modal_projector.norm.weight"}) {
      weights.tensors.push_back(
          {.name = vision, .dtype = "BF16", .shape = {1}, .data = std::vector<std::byte>(2)});
    }

    const auto model = OpenImageModel(weights);

    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->tensors().size(), 2u + 2u * 13u);
    EXPECT_NE((*model)->Find("layers.1.mlp_post_norm.weight"), nullptr);
  }
}

TEST(GemmaImageModelTest, ATensorOfNeitherPartIsRefused) {
  SafetensorsBuilder weights = ImageModel("model.language_model.");
  weights.tensors.push_back({.name = "audio_tower.patch.weight",
                             .dtype = "BF16",
                             .shape = {1},
                             .data = std::vector<std::byte>(2)});

  const auto model = OpenImageModel(weights);

  EXPECT_EQ(model.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("unknown tensor: 'audio_tower.patch.weight'"));
}

TEST(GemmaImageModelTest, OneTensorUnderTwoPrefixesIsRefused) {
  SafetensorsBuilder weights = ImageModel("model.language_model.");
  SafetensorsBuilder::Tensor again = weights.FindTensor("model.language_model.norm.weight");
  again.name = "model.norm.weight";
  weights.tensors.push_back(again);

  const auto model = OpenImageModel(weights);

  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("tensor stored twice"));
}

}  // namespace
}  // namespace baton::checkpoint
