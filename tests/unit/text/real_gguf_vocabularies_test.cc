#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "checkpoint/gguf_file.h"
#include "checkpoint/gguf_vocabulary.h"
#include "tests/support/gguf_from_json.h"
#include "tests/support/test_paths.h"
#include "tests/unit/text/real_tokenizers.h"
#include "tests/unit/text/support.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

using checkpoint::TextAssets;
using testing::Describe;
using testing::Json;
using testing::ReadGolden;
using Ids = std::vector<std::int32_t>;

std::unique_ptr<Tokenizer> MustCreate(const TextAssets& assets) {
  auto created = Tokenizer::Create(assets);
  EXPECT_TRUE(created.ok()) << created.status();
  return created.ok() ? *std::move(created) : nullptr;
}

// What a GGUF vocabulary cannot say: the post-processor may end with more than EOS.
bool OnlyBeginsWithBos(const Json& line, const TextAssets& assets) {
  Ids expected;
  if (assets.gguf->add_bos) expected.push_back(*assets.bos_id);
  for (const std::int32_t id : line["ids"]) expected.push_back(id);
  return line["ids_special"].get<Ids>() == expected;
}

void ExpectGolden(const std::string& name, const TextAssets& assets) {
  const auto tokenizer = MustCreate(assets);
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<Json> lines = ReadGolden("tokenizers/" + name + ".jsonl");
  int num_with_bos = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const std::string text = line["text"];
    SCOPED_TRACE(Describe(i, text));
    const Ids ids = line["ids"];
    EXPECT_EQ(tokenizer->Encode(text), ids);
    EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/false), line["decoded"]);
    if (!OnlyBeginsWithBos(line, assets)) continue;
    EXPECT_EQ(tokenizer->Encode(text, {.add_special_tokens = true}),
              line["ids_special"].get<Ids>());
    ++num_with_bos;
  }
  if (name == "command_r_plus") return;
  EXPECT_EQ(num_with_bos, static_cast<int>(lines.size()));
}

struct RealVocabulary {
  const char* name;
  const char* pre;  // nullptr: SentencePiece
};

class GgufRealVocabularyTest : public ::testing::TestWithParam<RealVocabulary> {};

// As GGUF, real vocabularies give the ids and texts that their tokenizer.json gives.
TEST_P(GgufRealVocabularyTest, AgreesWithTheTokenizerJson) {
  const RealVocabulary& real = GetParam();
  const std::string folder = testing::RealTokenizerFolder(real.name);
  if (folder.empty()) return;
  const std::string file = testing::ReadFile(folder + "/tokenizer.json");

  ExpectGolden(real.name, real.pre == nullptr
                              ? baton::testing::GgufSentencePieceFromJson(file)
                              : baton::testing::GgufByteLevelFromJson(file, real.pre));
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufRealVocabularyTest,
    ::testing::Values(RealVocabulary{"llama3_2", "llama-bpe"}, RealVocabulary{"qwen3", "qwen2"},
                      RealVocabulary{"deepseek_v3", "deepseek-v3"},
                      RealVocabulary{"mistral_nemo", "tekken"}, RealVocabulary{"gptoss", "gpt-4o"},
                      RealVocabulary{"command_r_plus", "command-r"},
                      RealVocabulary{"llama2", nullptr}, RealVocabulary{"gemma3", nullptr}),
    [](const auto& test) { return std::string(test.param.name); });

// llama.cpp's own vocabularies (its folder models/) with what Hugging Face's tokenizers make of a
// text of many kinds. They are not in the cache of tokenizers: the test runs where
// BATON_LLAMA_CPP_VOCABULARIES names that folder, for instance of llama-cpp-python's source
// package.
TEST(GgufLlamaCppVocabularyTest, AgreesWithLlamaCppsReferenceFiles) {
  const std::string folder = baton::testing::FromEnvironment("BATON_LLAMA_CPP_VOCABULARIES", "");
  if (folder.empty()) GTEST_SKIP() << "BATON_LLAMA_CPP_VOCABULARIES is not set";
  int num_vocabularies = 0;
  for (const std::string name :
       {"command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm",
        "mpt", "phi-3", "qwen2", "refact", "starcoder"}) {
    SCOPED_TRACE(name);
    const std::string path = folder + "/ggml-vocab-" + name + ".gguf";
    const std::string bytes = testing::ReadFile(path);
    const auto file = checkpoint::ParseGguf(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(file.ok()) << file.status();
    const auto assets = checkpoint::ReadGgufTextAssets(file->metadata);
    ASSERT_TRUE(assets.ok()) << assets.status();
    const auto tokenizer = MustCreate(*assets);
    if (tokenizer == nullptr) continue;
    const std::vector<std::string> texts =
        absl::StrSplit(testing::ReadFile(path + ".inp"), "\n__ggml_vocab_test__\n");
    const std::vector<std::string> expected =
        absl::StrSplit(testing::ReadFile(path + ".out"), '\n');
    ASSERT_LE(texts.size(), expected.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Ids ids;
      for (const auto& id : absl::StrSplit(expected[i], ' ', absl::SkipEmpty())) {
        ids.push_back(std::atoi(std::string(id).c_str()));
      }
      EXPECT_EQ(tokenizer->Encode(texts[i]), ids) << texts[i];
    }
    ++num_vocabularies;
  }
  EXPECT_EQ(num_vocabularies, 12);
}

}  // namespace
}  // namespace baton::text
