#include "text/incremental_detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/text/support.h"

namespace baton::text {
namespace {

using testing::Json;

using Ids = std::vector<std::int32_t>;

TEST(IncrementalDetokenizerTest, GivesTheReferencesDeltas) {
  const Tokenizer* tokenizer = testing::SmolLm2Tokenizer();
  if (tokenizer == nullptr) return;
  const std::vector<Json> lines = testing::ReadGolden("tokenizers/smollm2.incremental.jsonl");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE(testing::Describe(i, lines[i].dump()));
    IncrementalDetokenizer detokenizer(*tokenizer, /*skip_special_tokens=*/false);

    std::vector<std::string> deltas;
    for (const std::int32_t id : lines[i]["ids"]) deltas.push_back(detokenizer.Append(id));

    EXPECT_EQ(deltas, lines[i]["deltas"].get<std::vector<std::string>>());
    EXPECT_EQ(detokenizer.Finish(), lines[i].value("flush", ""));
  }
}

// Property: whatever ids come, in pieces cut anywhere, the deltas are well-formed and together are
// the whole-text decode.
TEST(IncrementalDetokenizerTest, DeltasTogetherAreTheWholeText) {
  const Tokenizer& tokenizer = testing::TinyTokenizer();
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const bool skip_special = random() % 2 == 0;
    Ids ids(random() % 40);
    // Mostly single-byte tokens (the low ids), so that characters break in every way.
    for (auto& id : ids)
      id = static_cast<std::int32_t>(random() % (random() % 8 == 0 ? 4096 : 261));
    IncrementalDetokenizer detokenizer(tokenizer, skip_special);

    std::string text;
    for (std::size_t at = 0; at < ids.size();) {
      const std::size_t count = std::min<std::size_t>(1 + random() % 4, ids.size() - at);
      const std::string delta = detokenizer.Append(std::span(ids).subspan(at, count));
      EXPECT_TRUE(IsValidUtf8(delta));
      text += delta;
      at += count;
    }
    text += detokenizer.Finish();

    EXPECT_EQ(text, tokenizer.Decode(ids, skip_special));
  }
}

TEST(Utf8StreamDecoderTest, HoldsBackOnlyWhatMayBecomeACharacter) {
  Utf8StreamDecoder decoder;

  EXPECT_EQ(decoder.Append("\xE4"), "");
  EXPECT_EQ(decoder.Append("\xBD"), "");
  EXPECT_EQ(decoder.Append("\xA0"), "\u4f60");
  EXPECT_EQ(decoder.Append("\xED\xA0"),
            "\uFFFD\uFFFD");  // a surrogate's beginning cannot become one
  EXPECT_EQ(decoder.Append("\xF0\x9F"), "");
  EXPECT_EQ(decoder.Append("x"), "\uFFFDx");
  EXPECT_EQ(decoder.Append("\xF0\x9F\x98"), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
}

}  // namespace
}  // namespace baton::text
