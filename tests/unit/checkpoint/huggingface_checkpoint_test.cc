#include "checkpoint/huggingface_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/checkpoint.h"
#include "tests/support/safetensors_builder.h"
#include "tests/support/temp_directory.h"

namespace baton::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::SafetensorsBuilder;
using testing::SmallLlamaConfig;
using testing::SmallLlamaSafetensors;

// A directory with a small valid model, of which a test changes what it is about.
class HuggingFaceCheckpointTest : public ::testing::Test {
 protected:
  HuggingFaceCheckpointTest() {
    WriteConfig(SmallLlamaConfig());
    directory_.Write("model.safetensors", SmallLlamaSafetensors().Build());
  }
  void WriteConfig(const testing::JsonFields& fields) {
    directory_.Write("config.json", testing::JsonText(fields));
  }
  absl::StatusOr<std::unique_ptr<Checkpoint>> Open() { return Checkpoint::Open(directory_.path()); }
  std::string Error() { return std::string(Open().status().message()); }

  testing::TempDirectory directory_;
};

TEST_F(HuggingFaceCheckpointTest, ReadsASmallModel) {
  const auto model = Open();

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->metadata().head_dim, 16);
  EXPECT_EQ((*model)->tensors().size(), 2u + 2u * 9u);
  EXPECT_THAT((*model)->Find("layers.1.gate.weight")->shape, ElementsAre(64, 32));
  EXPECT_FALSE((*model)->text_assets().tokenizer_json.has_value());
  EXPECT_THAT((*model)->text_assets().eos_ids, ElementsAre(1));
}

TEST_F(HuggingFaceCheckpointTest, ReadsShardsThroughTheirIndex) {
  SafetensorsBuilder first = SmallLlamaSafetensors();
  SafetensorsBuilder second = SmallLlamaSafetensors();
  std::string map;
  for (const auto& tensor : SmallLlamaSafetensors().tensors) {
    const bool in_second = tensor.name.find("layers.1.") != std::string::npos;
    (in_second ? first : second).RemoveTensor(tensor.name);
    map += (map.empty() ? "" : ",") + ("\"" + tensor.name + "\":\"part-") +
           (in_second ? "2" : "1") + ".safetensors\"";
  }
  directory_.Remove("model.safetensors");
  directory_.Write("part-1.safetensors", first.Build());
  directory_.Write("part-2.safetensors", second.Build());
  directory_.Write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");

  const auto model = Open();

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tensors().size(), 2u + 2u * 9u);

  directory_.Remove("part-2.safetensors");
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Error(), HasSubstr("missing shard: 'part-2.safetensors', which holds tensor"));

  first.RemoveTensor("model.norm.weight");
  directory_.Write("part-1.safetensors", first.Build());
  directory_.Write("part-2.safetensors", second.Build());
  EXPECT_THAT(
      Error(),
      HasSubstr("missing tensor: 'model.norm.weight' is not in shard 'part-1.safetensors'"));
}

TEST_F(HuggingFaceCheckpointTest, AShardCannotLieOutsideTheDirectory) {
  directory_.Write("model.safetensors.index.json", R"({"weight_map":{"a":"../x.safetensors"}})");

  EXPECT_THAT(Error(), HasSubstr("shard name must be a plain file name: '../x.safetensors'"));
}

TEST_F(HuggingFaceCheckpointTest, ATiedModelIgnoresAStoredHead) {
  SafetensorsBuilder weights = SmallLlamaSafetensors();
  auto head = weights.FindTensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  weights.tensors.push_back(head);
  directory_.Write("model.safetensors", weights.Build());

  const auto tied = Open();
  ASSERT_TRUE(tied.ok()) << tied.status();
  EXPECT_EQ((*tied)->Find("output.weight"), nullptr);

  testing::JsonFields config = SmallLlamaConfig();
  config["tie_word_embeddings"] = "false";
  WriteConfig(config);
  const auto untied = Open();
  ASSERT_TRUE(untied.ok()) << untied.status();
  EXPECT_NE((*untied)->Find("output.weight"), nullptr);
}

TEST_F(HuggingFaceCheckpointTest, NamesFileTensorAndExpectationWhenTensorsAreWrong) {
  SafetensorsBuilder weights = SmallLlamaSafetensors();
  weights.FindTensor("model.layers.1.mlp.up_proj.weight").shape = {32, 64};
  directory_.Write("model.safetensors", weights.Build());
  EXPECT_THAT(Error(), HasSubstr(directory_.path() +
                                 "/model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight': "
                                 "wrong shape: [32, 64], expected [64, 32]"));

  weights.RemoveTensor("model.layers.1.mlp.up_proj.weight");
  directory_.Write("model.safetensors", weights.Build());
  EXPECT_THAT(Error(), HasSubstr("missing tensor: 'model.layers.1.mlp.up_proj.weight', expected "
                                 "with shape [64, 32]"));
}

TEST_F(HuggingFaceCheckpointTest, WithoutWeightsItSaysWhatToDo) {
  directory_.Remove("model.safetensors");

  EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Error(), HasSubstr("no weights: neither model.safetensors nor"));
}

TEST_F(HuggingFaceCheckpointTest, EndIdsAreTheUnionOfBothConfigs) {
  directory_.Write("generation_config.json",
                   R"({"eos_token_id":[3,2,1,99],"bos_token_id":5,"temperature":0.6,"top_k":20,
                       "do_sample":true})");

  const auto model = Open();

  ASSERT_TRUE(model.ok()) << model.status();
  const TextAssets& text = (*model)->text_assets();
  EXPECT_THAT(text.eos_ids, ElementsAre(1, 2, 3));  // 99 is outside the vocabulary
  EXPECT_EQ(text.bos_id, 5);
  EXPECT_EQ(text.generation_defaults.size(), 2u);
  EXPECT_EQ(text.generation_defaults.at("temperature"), 0.6);
}

TEST_F(HuggingFaceCheckpointTest, SpecialTokensAreTextsOrObjects) {
  directory_.Write("tokenizer_config.json",
                   R"({"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>",
                       "pad_token":null,"add_bos_token":true,
                       "model_max_length":1000000000000000019884624838656,
                       "chat_template":[{"name":"tool_use","template":"T"},
                                        {"name":"default","template":"D"}]})");

  const auto model = Open();

  ASSERT_TRUE(model.ok()) << model.status();
  const TextAssets& text = (*model)->text_assets();
  EXPECT_EQ(text.special_tokens.size(), 2u);
  EXPECT_EQ(text.special_tokens.at("bos_token"), "<s>");
  EXPECT_EQ(text.special_tokens.at("eos_token"), "</s>");
  EXPECT_EQ(text.chat_template, "D");
  EXPECT_THAT(text.named_chat_templates, ElementsAre(Pair("tool_use", "T")));
}

TEST_F(HuggingFaceCheckpointTest, TokensOfOneModelAloneHaveRolesToo) {
  directory_.Write(
      "tokenizer_config.json",
      R"({"extra_special_tokens":{"image_token":"<image>","boi_token":{"content":"<b>"}},
                       "model_specific_special_tokens":["ignored"]})");

  const auto model = Open();

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->text_assets().special_tokens,
              ElementsAre(Pair("boi_token", "<b>"), Pair("image_token", "<image>")));
}

TEST_F(HuggingFaceCheckpointTest, TheOnlyTemplateOfAListNeedsNoUsualName) {
  directory_.Write("tokenizer_config.json",
                   R"({"chat_template":[{"name":"chatml","template":"T"}]})");

  const auto model = Open();

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->text_assets().chat_template, "T");
  EXPECT_THAT((*model)->text_assets().named_chat_templates, IsEmpty());
}

TEST_F(HuggingFaceCheckpointTest, TemplateFilesReplaceAllTemplatesOfTheConfig) {
  directory_.Write("tokenizer_config.json",
                   R"({"chat_template":[{"name":"default","template":"old"},
                                        {"name":"rag","template":"old"}]})");
  directory_.Write("chat_template.jinja", "new");
  directory_.Write("additional_chat_templates/tool_use.jinja", "tools");
  directory_.Write("additional_chat_templates/README.md", "no template");

  const auto model = Open();

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->text_assets().chat_template, "new");
  EXPECT_THAT((*model)->text_assets().named_chat_templates, ElementsAre(Pair("tool_use", "tools")));
}

TEST_F(HuggingFaceCheckpointTest, AProcessorsTemplateServesWhereTheTokenizerHasNone) {
  directory_.Write("chat_template.json", R"({"chat_template":"P"})");
  {
    const auto model = Open();
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->text_assets().chat_template, "P");
  }
  directory_.Write("tokenizer_config.json", R"({"chat_template":"T"})");

  const auto model = Open();

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->text_assets().chat_template, "T");
}

TEST_F(HuggingFaceCheckpointTest, TheTemplateFileComesBeforeTheConfigs) {
  directory_.Write("tokenizer_config.json", R"({"chat_template":"old"})");
  directory_.Write("chat_template.jinja", "new");

  const auto model = Open();

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->text_assets().chat_template, "new");
}

TEST_F(HuggingFaceCheckpointTest, BrokenSideFilesAreNamed) {
  directory_.Write("tokenizer_config.json", "{\"eos_token\":");
  EXPECT_THAT(Error(), HasSubstr("/tokenizer_config.json: not JSON: "));

  directory_.Write("tokenizer_config.json", R"({"chat_template":7})");
  EXPECT_THAT(Error(), HasSubstr("/tokenizer_config.json: key 'chat_template': wrong type"));

  directory_.Write("tokenizer_config.json", R"({"chat_template":[{"name":"default"}]})");
  EXPECT_THAT(Error(), HasSubstr("/tokenizer_config.json: key 'chat_template': every entry"));

  directory_.Remove("tokenizer_config.json");
  directory_.Write("chat_template.json", "[]");
  EXPECT_THAT(Error(), HasSubstr("/chat_template.json: not a JSON object"));

  directory_.Remove("chat_template.json");
  directory_.Write("generation_config.json", R"({"eos_token_id":"two"})");
  EXPECT_THAT(Error(), HasSubstr("/generation_config.json: key 'eos_token_id': wrong type"));
}

}  // namespace
}  // namespace baton::checkpoint
