#include "text/tokenizer/word_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "text/tokenizer/character_bpe.h"
#include "text/tokenizer/sentencepiece_bpe.h"
#include "text/tokenizer/space_mark_cuts.h"

namespace baton::text {
namespace {

using Ids = std::vector<std::int32_t>;

// Property: words of all lengths, short alphabets and many owners never get each other's ids.
TEST(WordCacheTest, NeverMixesWordsOrOwnersUp) {
  WordCache& cache = WordCache::OfThisThread();
  const std::uint32_t owners[] = {WordCache::NewOwner(), WordCache::NewOwner()};
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    std::string word(random() % 18, '\0');
    for (char& c : word) c = static_cast<char>(random() % 3);
    const std::uint32_t owner = owners[random() % 2];
    const auto compute = [owner](std::string_view text, Ids& ids) {
      ids.push_back(static_cast<std::int32_t>(owner));
      if (text.size() % 8 == 7) return;  // some words have few ids, some too many to remember
      for (const char c : text) ids.push_back(c);
    };
    Ids expected = {-1};
    compute(word, expected);
    Ids ids = {-1};

    cache.Append(owner, word, ids, compute);

    ASSERT_EQ(ids, expected);
  }
}

TEST(WordCacheTest, AsksOnceForARepeatedWord) {
  const std::uint32_t owner = WordCache::NewOwner();
  int num_asked = 0;
  Ids ids;
  for (int i = 0; i < 10; ++i) {
    WordCache::OfThisThread().Append(owner, "word", ids, [&](std::string_view, Ids& out) {
      ++num_asked;
      out.push_back(7);
    });
  }

  EXPECT_EQ(num_asked, 1);
  EXPECT_EQ(ids, Ids(10, 7));
}

TEST(SpaceMarkCutsTest, CutsWhereNoTokenJoins) {
  SpaceMarkCuts cuts;
  cuts.AddToken("\u2581the");
  cuts.AddToken("\u2581\u2581");
  cuts.AddToken("e\u2581x");

  EXPECT_EQ(cuts.FindCut("\u2581a\u2581b"), 4u);
  EXPECT_EQ(cuts.FindCut("\u2581\u2581b"), 7u);          // two marks may merge
  EXPECT_EQ(cuts.FindCut("e\u2581b\u00e9\u2581c"), 7u);  // so may e and a mark
  EXPECT_EQ(cuts.FindCut("abc"), 3u);
}

// Property: a vocabulary merges a text as one word and cut into words alike. What is compared with
// has a token that joins every character to a mark, so that it cuts nowhere, and that no text
// makes.
TEST(SpaceMarkCutsTest, CutsChangeNothing) {
  const std::vector<std::string> alphabet = {"a", "b", "\u00e9", "\u2581", "?"};
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SentencePieceBpeSpec by_scores;
    BpeSpec by_merges;
    by_scores.unk_id = 1000;
    by_merges.unk_token = "<unk>";
    by_merges.fuse_unk = true;
    std::vector<std::string> tokens = {"a", "b", "\u00e9", "\u2581"};
    for (int i = 0; i < 30; ++i) {
      const std::string& left = tokens[random() % tokens.size()];
      const std::string& right = tokens[random() % tokens.size()];
      const std::string joined = left + right;
      if (std::find(tokens.begin(), tokens.end(), joined) != tokens.end()) continue;
      by_merges.merges.emplace_back(left, right);
      tokens.push_back(joined);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      by_scores.pieces.push_back({tokens[i], id, static_cast<float>(random() % 10)});
      by_merges.vocabulary.emplace_back(tokens[i], id);
    }
    by_merges.vocabulary.emplace_back("<unk>", 1000);
    SentencePieceBpeSpec uncut_scores = by_scores;
    BpeSpec uncut_merges = by_merges;
    std::string joiner = "#";
    for (const std::string& character : alphabet) joiner += character + "\u2581";
    uncut_scores.pieces.push_back({joiner, 999, -1.0F});
    uncut_merges.vocabulary.emplace_back(joiner, 999);
    const auto scores = SentencePieceBpe::Create(by_scores);
    const auto scores_uncut = SentencePieceBpe::Create(uncut_scores);
    const auto merges = CharacterBpe::Create(by_merges);
    const auto merges_uncut = CharacterBpe::Create(uncut_merges);
    ASSERT_TRUE(scores.ok() && scores_uncut.ok() && merges.ok() && merges_uncut.ok());
    for (int i = 0; i < 50; ++i) {
      std::string text;
      const std::size_t length = 1 + random() % 80;
      for (std::size_t k = 0; k < length; ++k) text += alphabet[random() % alphabet.size()];
      const auto ids = [&](const TokenModel& model) {
        Ids out;
        model.Tokenize(text, out);
        return out;
      };
      EXPECT_EQ(ids(**scores), ids(**scores_uncut)) << text;
      EXPECT_EQ(ids(**merges), ids(**merges_uncut)) << text;
    }
  }
}

}  // namespace
}  // namespace baton::text
