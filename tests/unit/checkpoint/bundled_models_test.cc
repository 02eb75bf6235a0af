// The two models that Baton comes with open, and say what their READMEs say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/inspect.h"
#include "tests/support/test_paths.h"

namespace baton::checkpoint {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BundledModelsTest, TinyTargetOpensAsItsReadmeSays) {
  const auto model = Checkpoint::Open(testing::ModelsDir() + "/tiny/target");

  ASSERT_TRUE(model.ok()) << model.status();
  const ModelMetadata& metadata = (*model)->metadata();
  EXPECT_EQ(metadata.architecture, "llama");
  EXPECT_EQ(metadata.name, "target");
  EXPECT_EQ(metadata.format, "huggingface");
  EXPECT_EQ(metadata.hidden_size, 256);
  EXPECT_EQ(metadata.num_layers, 5);
  EXPECT_EQ(metadata.num_heads, 8);
  EXPECT_EQ(metadata.num_kv_heads, 4);
  EXPECT_EQ(metadata.head_dim, 32);
  EXPECT_EQ(metadata.intermediate_size, 768);
  EXPECT_EQ(metadata.vocab_size, 4096);
  EXPECT_EQ(metadata.max_context, 1024);
  EXPECT_FLOAT_EQ(metadata.rms_norm_eps, 1e-5f);
  EXPECT_TRUE(metadata.tied_embeddings);
  EXPECT_FALSE(metadata.attention_bias);
  EXPECT_FLOAT_EQ(metadata.rope.theta, 10000.0f);
  EXPECT_EQ(metadata.rope.dim, 32);
  EXPECT_FALSE(metadata.rope.interleaved);
  EXPECT_EQ(metadata.rope.scaling, RopeScaling::kNone);
}

TEST(BundledModelsTest, TinyTargetBringsItsTextAssets) {
  const auto model = Checkpoint::Open(testing::ModelsDir() + "/tiny/target");

  ASSERT_TRUE(model.ok()) << model.status();
  const TextAssets& text = (*model)->text_assets();
  ASSERT_TRUE(text.tokenizer_json.has_value());
  EXPECT_FALSE(text.gguf.has_value());
  EXPECT_THAT(text.chat_template.value_or(""), HasSubstr("<|assistant|>"));
  EXPECT_EQ(text.special_tokens.at("eos_token"), "<|end|>");
  EXPECT_EQ(text.special_tokens.at("pad_token"), "<|endoftext|>");
  EXPECT_FALSE(text.bos_id.has_value());
  EXPECT_THAT(text.eos_ids, ElementsAre(4));
}

TEST(BundledModelsTest, TinyPairHasTheParameterCountsOfItsReadme) {
  const auto target = Checkpoint::Open(testing::ModelsDir() + "/tiny/target");
  const auto draft = Checkpoint::Open(testing::ModelsDir() + "/tiny/draft");

  ASSERT_TRUE(target.ok()) << target.status();
  ASSERT_TRUE(draft.ok()) << draft.status();
  EXPECT_EQ(Inspect(**target).parameters, 4'983'552);
  EXPECT_EQ(Inspect(**draft).parameters, 918'144);
  EXPECT_NE((*target)->fingerprint(), (*draft)->fingerprint());
}

TEST(BundledModelsTest, TinyTargetHasEveryCanonicalTensor) {
  const auto model = Checkpoint::Open(testing::ModelsDir() + "/tiny/target");

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tensors().size(), 2u + 5u * 9u);
  const Tensor* k = (*model)->Find("layers.4.k.weight");
  ASSERT_NE(k, nullptr);
  EXPECT_THAT(k->shape, ElementsAre(128, 256));
  EXPECT_EQ(k->dtype, DType::kBF16);
  EXPECT_EQ(k->data.size(), 128u * 256u * 2u);
  EXPECT_EQ((*model)->Find("output.weight"), nullptr);
  EXPECT_EQ((*model)->Find("layers.5.k.weight"), nullptr);
}

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing::SmolLm2Path();
    if (path.empty()) GTEST_SKIP() << "SmolLM2 is not downloaded (scripts fetch it)";
    auto model = Checkpoint::Open(path);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  std::unique_ptr<Checkpoint> model_;
};

TEST_F(SmolLm2Test, HasItsMetadata) {
  const ModelMetadata& metadata = model_->metadata();

  EXPECT_EQ(metadata.architecture, "llama");
  EXPECT_EQ(metadata.format, "gguf");
  EXPECT_EQ(metadata.name, "Smollm2 135M 8k Lc100K Mix1 Ep2");
  EXPECT_EQ(metadata.hidden_size, 576);
  EXPECT_EQ(metadata.num_layers, 30);
  EXPECT_EQ(metadata.num_heads, 9);
  EXPECT_EQ(metadata.num_kv_heads, 3);
  EXPECT_EQ(metadata.head_dim, 64);
  EXPECT_EQ(metadata.intermediate_size, 1536);
  EXPECT_EQ(metadata.vocab_size, 49152);
  EXPECT_EQ(metadata.max_context, 8192);
  EXPECT_TRUE(metadata.tied_embeddings);
  EXPECT_FLOAT_EQ(metadata.rope.theta, 100000.0f);
  EXPECT_TRUE(metadata.rope.interleaved);
}

TEST_F(SmolLm2Test, HasItsVocabulary) {
  const TextAssets& text = model_->text_assets();

  ASSERT_TRUE(text.gguf.has_value());
  EXPECT_EQ(text.gguf->model, "gpt2");
  EXPECT_EQ(text.gguf->pre, "smollm");
  ASSERT_EQ(text.gguf->tokens.size(), 49152u);
  EXPECT_EQ(text.gguf->tokens[2], "<|im_end|>");
  EXPECT_EQ(text.gguf->types[16], TokenType::kControl);
  EXPECT_EQ(text.gguf->types[17], TokenType::kNormal);
  EXPECT_EQ(text.gguf->merges.size(), 48900u);
  EXPECT_EQ(text.gguf->merges[3], "h e");
  EXPECT_FALSE(text.gguf->add_bos);
  EXPECT_FALSE(text.gguf->add_space_prefix);
  EXPECT_THAT(text.eos_ids, ElementsAre(2));
  EXPECT_EQ(text.bos_id, 1);
  EXPECT_EQ(text.special_tokens.at("bos_token"), "<|im_start|>");
  EXPECT_EQ(text.special_tokens.at("eos_token"), "<|im_end|>");
  EXPECT_EQ(text.special_tokens.at("unk_token"), "<|endoftext|>");
  EXPECT_THAT(text.chat_template.value_or(""), HasSubstr("named SmolLM"));
}

TEST_F(SmolLm2Test, CountsItsTypesAndBytes) {
  const ModelFacts facts = Inspect(*model_);

  EXPECT_EQ(facts.parameters, 134'515'008);
  EXPECT_EQ(facts.by_type.at(DType::kQ4_1).tensors, 7 * 30);
  EXPECT_EQ(facts.by_type.at(DType::kF32).tensors, 2 * 30 + 1);
  EXPECT_EQ(facts.by_type.at(DType::kQ8_0).tensors, 1);
  const auto file_bytes = WeightFileBytes(testing::SmolLm2Path());
  ASSERT_TRUE(file_bytes.ok()) << file_bytes.status();
  EXPECT_GT(*file_bytes, facts.tensor_bytes);
  EXPECT_LT(*file_bytes, facts.tensor_bytes + (4 << 20));
  EXPECT_EQ(KvBytesPerToken(facts.metadata, 2), 30 * 2 * 3 * 64 * 2);
}

TEST_F(SmolLm2Test, KeepsTheTypesOfItsTensors) {
  EXPECT_EQ(model_->Find("token_embedding.weight")->dtype, DType::kQ8_0);
  EXPECT_THAT(model_->Find("layers.29.down.weight")->shape, ElementsAre(576, 1536));
  EXPECT_EQ(model_->Find("layers.29.down.weight")->dtype, DType::kQ4_1);
  EXPECT_EQ(model_->Find("output.weight"), nullptr);
}

}  // namespace
}  // namespace baton::checkpoint
