#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/unit/text/support.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

using testing::Describe;
using testing::Json;
using testing::ReadGolden;

using Ids = std::vector<std::int32_t>;

void ExpectGolden(const Tokenizer& tokenizer, std::string_view file) {
  const std::vector<Json> lines = ReadGolden(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const std::string text = line["text"];
    SCOPED_TRACE(Describe(i, text));
    const Ids ids = line["ids"];
    EXPECT_EQ(tokenizer.Encode(text), ids);
    EXPECT_EQ(tokenizer.Decode(ids, /*skip_special_tokens=*/false), line["decoded"]);
    if (!line.contains("ids_special")) continue;
    const Ids with_special = line["ids_special"];
    EXPECT_EQ(tokenizer.Encode(text, {.add_special_tokens = true}), with_special);
    EXPECT_EQ(tokenizer.Decode(with_special, /*skip_special_tokens=*/true),
              line.value("decoded_skip", line["decoded"].get<std::string>()));
  }
}

// Well-formed text of random code points, with runs, ASCII and special tokens mixed in.
std::string RandomText(std::mt19937& random) {
  std::string text;
  const int num_parts = static_cast<int>(random() % 20);
  for (int i = 0; i < num_parts; ++i) {
    switch (random() % 5) {
      case 0:
        text += "<|end|>";
        break;
      case 1:
        text += std::string(random() % 70, static_cast<char>('a' + random() % 3));
        break;
      case 2:
        AppendUtf8(static_cast<char32_t>(random() % 128), text);
        break;
      default:
        char32_t c = random() % 0x110000;
        if (c >= 0xD800 && c < 0xE000) c = ' ';
        AppendUtf8(c, text);
    }
  }
  return text;
}

TEST(TokenizerTest, AgreesWithTheReferenceOnTinysStrings) {
  ExpectGolden(testing::TinyTokenizer(), "tiny/tokenizer.jsonl");
}

TEST(TokenizerTest, AgreesWithTheReferenceOnSmolLm2sStrings) {
  const Tokenizer* tokenizer = testing::SmolLm2Tokenizer();
  if (tokenizer == nullptr) return;
  ExpectGolden(*tokenizer, "tokenizers/smollm2.jsonl");
}

TEST(TokenizerTest, GivesTheReferencesPromptIdsForRawPrompts) {
  const Tokenizer* smollm2 = testing::SmolLm2Tokenizer();
  for (const auto& [name, tokenizer] : {std::pair("tiny/greedy.jsonl", &testing::TinyTokenizer()),
                                        std::pair("smollm2/greedy.jsonl", smollm2)}) {
    if (tokenizer == nullptr) continue;
    int num_raw = 0;
    for (const Json& line : ReadGolden(name)) {
      if (line["kind"] != "raw" || !line.contains("prompt")) continue;
      SCOPED_TRACE(line["id"].get<std::string>());
      EXPECT_EQ(tokenizer->Encode(line["prompt"].get<std::string>()),
                line["prompt_ids"].get<Ids>());
      ++num_raw;
    }
    EXPECT_GT(num_raw, 0) << name;
  }
}

// Property: a byte-level vocabulary with all bytes loses nothing.
TEST(TokenizerTest, DecodesWhatItEncoded) {
  const Tokenizer& tokenizer = testing::TinyTokenizer();
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::string text = RandomText(random);
    for (const bool parse_special : {true, false}) {
      const Ids ids = tokenizer.Encode(text, {.parse_special = parse_special});
      EXPECT_EQ(tokenizer.Decode(ids, /*skip_special_tokens=*/false), text);
    }
  }
}

TEST(TokenizerTest, ReadsIllFormedTextAsReplacementCharacters) {
  const Tokenizer& tokenizer = testing::TinyTokenizer();

  const Ids ids = tokenizer.Encode(
      "a\xFF\xE4\xBD"
      "b");

  EXPECT_EQ(tokenizer.Decode(ids, false), "a\uFFFD\uFFFDb");
}

TEST(TokenizerTest, MatchesSpecialTokensOnlyWhenAsked) {
  const Tokenizer& tokenizer = testing::TinyTokenizer();

  EXPECT_EQ(tokenizer.Encode("<|end|>"), (Ids{4}));
  const Ids plain = tokenizer.Encode("<|end|>", {.parse_special = false});
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(tokenizer.Decode(plain, true), "<|end|>");
  EXPECT_EQ(tokenizer.Decode(Ids{4}, true), "");
}

TEST(TokenizerTest, NamesTokens) {
  const Tokenizer& tokenizer = testing::TinyTokenizer();

  EXPECT_EQ(tokenizer.vocab_size(), 4096);
  EXPECT_EQ(tokenizer.TokenId("<|user|>"), 2);
  EXPECT_TRUE(tokenizer.IsSpecial(2));
  const std::optional<std::int32_t> space = tokenizer.TokenId(" ");
  ASSERT_TRUE(space.has_value());
  EXPECT_EQ(tokenizer.TokenBytes(*space), " ");
  EXPECT_FALSE(tokenizer.IsSpecial(*space));
  EXPECT_FALSE(tokenizer.TokenId("no such token in here").has_value());
}

TEST(TokenizerTest, IdsOutsideTheVocabularyAddNothing) {
  const Tokenizer& tokenizer = testing::TinyTokenizer();

  EXPECT_EQ(tokenizer.Decode(Ids{-1, 4096, 1 << 30, 69}, false), "a");
  EXPECT_EQ(tokenizer.TokenBytes(-1), "");
  EXPECT_FALSE(tokenizer.IsSpecial(1 << 30));
}

}  // namespace
}  // namespace baton::text
