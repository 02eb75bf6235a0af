#include "checkpoint/huggingface_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/support/safetensors_builder.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;
using testing::JsonFields;
using testing::SmallLlamaConfig;

absl::StatusOr<HuggingFaceConfig> Read(const JsonFields& fields) {
  const auto object = JsonObject::Parse(testing::JsonText(fields));
  if (!object.ok()) return object.status();
  return ReadHuggingFaceConfig(*object);
}

JsonFields With(const std::string& key, const std::string& value) {
  JsonFields fields = SmallLlamaConfig();
  if (value.empty()) {
    fields.erase(key);
  } else {
    fields[key] = value;
  }
  return fields;
}

TEST(HuggingFaceConfigTest, ReadsTheFormOfTransformers4) {
  const auto config = Read(With("rope_scaling", R"({"type":"linear","factor":4.0})"));

  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->metadata.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(config->metadata.rope.factor, 4.0f);
  EXPECT_EQ(config->metadata.rope.theta, 10000.0f);
  EXPECT_FALSE(config->metadata.rope.interleaved);
}

TEST(HuggingFaceConfigTest, ReadsTheFormOfTransformers5) {
  JsonFields fields =
      With("rope_parameters", R"({"rope_theta":500000.0,"rope_type":"llama3","factor":8.0,
                                  "low_freq_factor":1.5,"high_freq_factor":4.5,
                                  "original_max_position_embeddings":64})");
  fields.erase("rope_theta");

  const auto config = Read(fields);

  ASSERT_TRUE(config.ok()) << config.status();
  const RopeMetadata& rope = config->metadata.rope;
  EXPECT_EQ(rope.theta, 500000.0f);
  EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(rope.factor, 8.0f);
  EXPECT_EQ(rope.low_frequency_factor, 1.5f);
  EXPECT_EQ(rope.high_frequency_factor, 4.5f);
  EXPECT_EQ(rope.original_max_position, 64);
}

TEST(HuggingFaceConfigTest, MissingKeysGetTheDefaultsOfTransformers) {
  JsonFields fields = SmallLlamaConfig();
  for (const char* key : {"num_key_value_heads", "rms_norm_eps", "rope_theta", "rope_scaling",
                          "attention_bias", "mlp_bias", "tie_word_embeddings", "hidden_act"}) {
    fields.erase(key);
  }

  const auto config = Read(fields);

  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->metadata.num_kv_heads, 2);
  EXPECT_FLOAT_EQ(config->metadata.rms_norm_eps, 1e-6f);
  EXPECT_EQ(config->metadata.rope.theta, 10000.0f);
  EXPECT_FALSE(config->metadata.tied_embeddings);
}

TEST(HuggingFaceConfigTest, AHeadSizeMayDifferFromTheQuotient) {
  const auto config = Read(With("head_dim", "24"));

  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->metadata.head_dim, 24);
  EXPECT_EQ(config->metadata.rope.dim, 24);
}

TEST(HuggingFaceConfigTest, TheModelTypeTellsWhereNoClassIsNamed) {
  JsonFields fields = With("architectures", "");
  fields["model_type"] = R"("qwen2")";

  const auto config = Read(fields);

  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->metadata.architecture, "qwen2");
}

TEST(HuggingFaceConfigTest, WithoutClassAndTypeNothingIsGuessed) {
  JsonFields fields = With("architectures", "");
  fields["model_type"] = R"("mamba")";
  const auto unknown = Read(fields);
  fields.erase("model_type");
  const auto missing = Read(fields);

  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kFailedPrecondition) << unknown.status();
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("unsupported architecture: 'mamba'; supported: LlamaForCausalLM"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument) << missing.status();
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("missing key: 'architectures'"));
}

struct Refusal {
  std::string name;
  std::string key;
  std::string value;  // empty: the key is left out
  absl::StatusCode code;
  std::string message;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class HuggingFaceConfigRefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(HuggingFaceConfigRefusalTest, IsRefusedWithItsReason) {
  const auto config = Read(With(GetParam().key, GetParam().value));

  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), GetParam().code) << config.status();
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(GetParam().message));
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kFailedPrecondition;

const Refusal kRefusals[] = {
    {"ArchitectureIsText", "architectures", R"("LlamaForCausalLM")", kInvalid,
     "key 'architectures': wrong type, must be an array of strings"},
    {"OtherArchitecture", "architectures", R"(["MambaForCausalLM"])", kUnsupported,
     "unsupported architecture: 'MambaForCausalLM'; supported: LlamaForCausalLM, Mistral"},
    {"TypeOfAnotherFamily", "model_type", R"("mistral")", kInvalid,
     "keys disagree: 'architectures' names 'LlamaForCausalLM', 'model_type' is 'mistral'"},
    {"TwoRopeBases", "rope_parameters", R"({"rope_type":"default","rope_theta":5000.0})", kInvalid,
     "'rope_theta' is given twice and differs: 10000 of the model, 5000 of its rope scaling"},
    {"NoHiddenSize", "hidden_size", "", kInvalid, "missing key: 'hidden_size', the hidden size"},
    {"HiddenSizeIsText", "hidden_size", R"("32")", kInvalid, "'hidden_size': wrong type"},
    {"HiddenSizeIsFraction", "hidden_size", "32.5", kInvalid, "'hidden_size': wrong type"},
    {"NegativeLayers", "num_hidden_layers", "-1", kInvalid, "number of layers out of range: -1"},
    {"AbsurdVocabulary", "vocab_size", "1e3", kInvalid, "'vocab_size': wrong type"},
    {"HugeVocabulary", "vocab_size", "99999999999999999999", kInvalid, "'vocab_size': wrong type"},
    {"KvHeadsDoNotDivide", "num_key_value_heads", "3", kInvalid, "KV heads do not divide"},
    {"HeadsDoNotDivide", "num_attention_heads", "5", kInvalid, "heads do not divide"},
    {"ZeroEpsilon", "rms_norm_eps", "0", kInvalid, "RMS norm epsilon out of range: 0"},
    {"OddHeadSize", "head_dim", "15", kInvalid, "rotated dimensions out of range: 15"},
    {"ZeroTheta", "rope_theta", "0.0", kInvalid, "rope base out of range: 0"},
    {"Mrope", "rope_scaling", R"({"rope_type":"mrope","factor":4.0})", kUnsupported,
     "unsupported rope scaling: 'mrope'; supported: default, linear, dynamic, llama3, yarn, long"},
    {"NoFactor", "rope_scaling", R"({"rope_type":"linear"})", kInvalid,
     "rope scaling factor out of range: 0"},
    {"Llama3WithoutOriginal", "rope_scaling", R"({"rope_type":"llama3","factor":8.0})", kInvalid,
     "'original_max_position_embeddings': missing or out of range"},
    {"Llama3FactorsReversed", "rope_scaling",
     R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":4.0,"high_freq_factor":1.0,
         "original_max_position_embeddings":64})",
     kInvalid, "low 4, high 1, must be 0 < low < high"},
    {"PartialRotaryTooLarge", "partial_rotary_factor", "1.5", kInvalid,
     "'partial_rotary_factor' out of range: 1.5"},
    {"MlpBiasIsNumber", "mlp_bias", "1", kInvalid, "'mlp_bias': wrong type"},
    {"Relu", "hidden_act", R"("relu2")", kUnsupported, "hidden_act is 'relu2'"},
    {"BiasIsNumber", "attention_bias", "1", kInvalid, "'attention_bias': wrong type"},
};

INSTANTIATE_TEST_SUITE_P(Every, HuggingFaceConfigRefusalTest, ::testing::ValuesIn(kRefusals),
                         [](const auto& refusal) { return refusal.param.name; });

}  // namespace
}  // namespace baton::checkpoint
