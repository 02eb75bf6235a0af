#include "checkpoint/gguf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_directory.h"

namespace baton::checkpoint {
namespace {

using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::SmallLlamaGguf;

// A model and the bytes it points into.
struct Opened {
  explicit Opened(const GgufBuilder& builder)
      : bytes(builder.Build()), model(OpenGgufFromMemory(bytes, "small.gguf")) {}
  const Checkpoint& operator*() const { return **model; }

  std::vector<std::byte> bytes;
  absl::StatusOr<std::unique_ptr<Checkpoint>> model;
};

GgufBuilder::Tensor FloatVector(const std::string& name, const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {.name = name,
          .shape = {static_cast<std::int64_t>(values.size())},
          .type = 0,
          .data = {bytes.begin(), bytes.end()}};
}

TEST(GgufCheckpointTest, ReadsASmallModel) {
  const Opened opened(SmallLlamaGguf());

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  const ModelMetadata& metadata = (*opened).metadata();
  EXPECT_EQ(metadata.name, "small");
  EXPECT_EQ(metadata.head_dim, 16);
  EXPECT_EQ(metadata.num_kv_heads, 1);
  EXPECT_TRUE(metadata.tied_embeddings);
  EXPECT_TRUE(metadata.rope.interleaved);
  EXPECT_THAT((*opened).Find("layers.1.down.weight")->shape, ElementsAre(32, 64));
  EXPECT_THAT((*opened).text_assets().eos_ids, ElementsAre(1));
}

TEST(GgufCheckpointTest, VersionTwoHasTheSameLayout) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.version = 2;

  EXPECT_TRUE(Opened(builder).model.ok());
}

TEST(GgufCheckpointTest, AnOutputTensorMeansAnUntiedHead) {
  GgufBuilder builder = SmallLlamaGguf();
  auto head = builder.FindTensor("token_embd.weight");
  head.name = "output.weight";
  builder.tensors.push_back(head);

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  EXPECT_FALSE((*opened).metadata().tied_embeddings);
  EXPECT_THAT((*opened).Find("output.weight")->shape, ElementsAre(8, 32));
}

TEST(GgufCheckpointTest, RopeFactorsOfLlama31BecomeMetadata) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.tensors.push_back(FloatVector("rope_freqs.weight", {1, 1, 1, 1, 2, 4, 8, 8}));

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  EXPECT_THAT((*opened).metadata().rope.frequency_factors, ElementsAre(1, 1, 1, 1, 2, 4, 8, 8));
  EXPECT_EQ((*opened).tensors().size(), 2u + 2u * 9u);
}

TEST(GgufCheckpointTest, BiasTensorsAreCalledForOnceOneIsThere) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.tensors.push_back(FloatVector("blk.0.attn_q.bias", std::vector<float>(32)));

  const Opened opened(builder);

  ASSERT_FALSE(opened.model.ok());
  EXPECT_THAT(std::string(opened.model.status().message()),
              HasSubstr("missing tensor: 'blk.1.attn_q.bias', expected with shape [32]"));
}

TEST(GgufCheckpointTest, EndsAreTheDeclaredOnesOnly) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Set("tokenizer.ggml.eot_token_id", 5u);
  builder.Set("tokenizer.ggml.eom_token_id", 1u);

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  // Token 0 is "<|end|>", a control token, but the file declares others.
  EXPECT_THAT((*opened).text_assets().eos_ids, ElementsAre(1, 5));
  EXPECT_EQ((*opened).text_assets().special_tokens.at("eot_token"), "ab");
}

TEST(GgufCheckpointTest, TakesAListOfEndIdsToo) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Set("tokenizer.ggml.eog_token_ids", std::vector<std::int32_t>{5, 1});

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  EXPECT_THAT((*opened).text_assets().eos_ids, ElementsAre(1, 5));
}

TEST(GgufCheckpointTest, ReadsNamedChatTemplates) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Set("tokenizer.chat_template", std::string("D"));
  builder.Set("tokenizer.chat_templates", std::vector<std::string>{"tool_use", "rag"});
  builder.Set("tokenizer.chat_template.tool_use", std::string("T"));
  builder.Set("tokenizer.chat_template.rag", std::string("R"));

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  EXPECT_EQ((*opened).text_assets().chat_template, "D");
  EXPECT_THAT((*opened).text_assets().named_chat_templates,
              ElementsAre(Pair("rag", "R"), Pair("tool_use", "T")));
}

TEST(GgufCheckpointTest, EndsAreFoundByTextWhenNoneIsDeclared) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Remove("tokenizer.ggml.eos_token_id");

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  EXPECT_THAT((*opened).text_assets().eos_ids, ElementsAre(0, 1));
}

TEST(GgufCheckpointTest, OldSentencePieceFilesHaveTheUsualIds) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Set("tokenizer.ggml.model", std::string("llama"));
  builder.Remove("tokenizer.ggml.bos_token_id");
  builder.Remove("tokenizer.ggml.eos_token_id");
  builder.Remove("tokenizer.ggml.unknown_token_id");

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  EXPECT_EQ((*opened).text_assets().bos_id, 1);
  EXPECT_EQ((*opened).text_assets().gguf->eos_id, 2);
  EXPECT_EQ((*opened).text_assets().gguf->unk_id, 0);
}

TEST(GgufCheckpointTest, ReadsWhatUnigramVocabulariesHave) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Set("tokenizer.ggml.model", std::string("t5"));
  builder.Set("tokenizer.ggml.eos_token_id", 3u);
  builder.Set("tokenizer.ggml.remove_extra_whitespaces", true);
  builder.Set("tokenizer.ggml.precompiled_charsmap", std::vector<std::int32_t>{0, -1, 255, 65});

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  const GgufVocabulary& vocabulary = *(*opened).text_assets().gguf;
  EXPECT_FALSE(vocabulary.add_bos);
  EXPECT_TRUE(vocabulary.add_eos);
  EXPECT_TRUE(vocabulary.add_space_prefix);
  EXPECT_TRUE(vocabulary.remove_extra_whitespaces);
  EXPECT_EQ(vocabulary.precompiled_charsmap, std::string("\0\xFF\xFF"
                                                         "A",
                                                         4));
  EXPECT_EQ(vocabulary.eos_id, 3);
  EXPECT_EQ(vocabulary.unk_id, 2);
}

TEST(GgufCheckpointTest, RefusesACharsmapOfWhatAreNoBytes) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Set("tokenizer.ggml.precompiled_charsmap", std::vector<std::int32_t>{1, 256});

  const Opened opened(builder);

  EXPECT_EQ(opened.model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(opened.model.status().message().find("not a byte: 256"), absl::string_view::npos);
}

TEST(GgufCheckpointTest, KnowsPhi3ByItsName) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Set("general.name", std::string("Phi-3 Mini 4k"));

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  EXPECT_TRUE((*opened).text_assets().gguf->special_tokens_strip_right);
}

TEST(GgufCheckpointTest, SentencePieceModelsBeginWithBosUnlessToldOtherwise) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Set("tokenizer.ggml.model", std::string("llama"));
  builder.Set("tokenizer.ggml.bos_token_id", 2u);
  builder.Set("tokenizer.ggml.scores", std::vector<float>(8, -1.5f));

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  const GgufVocabulary& vocabulary = *(*opened).text_assets().gguf;
  EXPECT_TRUE(vocabulary.add_bos);
  EXPECT_TRUE(vocabulary.add_space_prefix);
  EXPECT_EQ(vocabulary.scores.at(7), -1.5f);
  EXPECT_EQ((*opened).text_assets().bos_id, 2);
}

TEST(GgufCheckpointTest, AModelMayComeWithoutATokenizer) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Remove("tokenizer.ggml.model");
  builder.Set("llama.vocab_size", 8u);

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  EXPECT_FALSE((*opened).text_assets().gguf.has_value());
  EXPECT_THAT((*opened).text_assets().eos_ids, IsEmpty());
}

TEST(GgufCheckpointTest, SamplingDefaultsGetTheirUsualNames) {
  GgufBuilder builder = SmallLlamaGguf();
  builder.Set("general.sampling.temp", 0.5f);
  builder.Set("general.sampling.top_k", 20);

  const Opened opened(builder);

  ASSERT_TRUE(opened.model.ok()) << opened.model.status();
  EXPECT_EQ((*opened).text_assets().generation_defaults.at("temperature"), 0.5);
  EXPECT_EQ((*opened).text_assets().generation_defaults.at("top_k"), 20);
}

TEST(GgufCheckpointTest, OpensFromDiskAndNamesTheFileInErrors) {
  const testing::TempDirectory directory;
  const std::vector<std::byte> bytes = SmallLlamaGguf().Build();
  const std::string good = directory.Write("good.gguf", bytes);
  const std::string cut = directory.Write("cut.gguf", std::span(bytes).first(bytes.size() / 2));

  const auto model = Checkpoint::Open(good);
  const auto truncated = Checkpoint::Open(cut);

  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tensors().size(), 2u + 2u * 9u);
  EXPECT_EQ(truncated.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(truncated.status().message()), HasSubstr(cut + ": tensor 'blk."));
}

TEST(GgufCheckpointTest, SaysWhatToDoAboutPathsThatAreNoModel) {
  const testing::TempDirectory directory;
  const std::string empty = directory.Write("empty.gguf", "");
  const std::string pointer = directory.Write(
      "pointer.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  const std::string weights = directory.Write("model.safetensors", "x");

  const auto missing = Checkpoint::Open(directory.path() + "/none.gguf");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Checkpoint::Open(empty).status().message()), HasSubstr("file is empty"));
  EXPECT_THAT(std::string(Checkpoint::Open(pointer).status().message()), HasSubstr("git lfs pull"));
  EXPECT_THAT(std::string(Checkpoint::Open(weights).status().message()),
              HasSubstr("give the directory"));
  EXPECT_THAT(std::string(Checkpoint::Open(directory.path()).status().message()),
              HasSubstr("no config.json"));
}

}  // namespace
}  // namespace baton::checkpoint
