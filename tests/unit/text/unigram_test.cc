#include "text/tokenizer/unigram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "text/tokenizer/byte_trie.h"

namespace baton::text {
namespace {

using Ids = std::vector<std::int32_t>;

Ids Tokenize(const Unigram& model, std::string_view word) {
  Ids ids;
  model.Tokenize(word, ids);
  return ids;
}

UnigramSpec Spec(std::vector<std::pair<std::string, double>> tokens, bool byte_fallback = false) {
  UnigramSpec spec;
  for (const auto& [text, score] : tokens) {
    spec.vocabulary.push_back({text, static_cast<std::int32_t>(spec.vocabulary.size()), score});
  }
  spec.unk_id = 0;
  spec.byte_fallback = byte_fallback;
  return spec;
}

std::unique_ptr<Unigram> MustCreate(UnigramSpec spec) {
  auto model = Unigram::Create(std::move(spec));
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::size_t CharacterLength(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) {
    ++length;
  }
  return length;
}

// The definition: every way to write the word as tokens and unknown characters, the highest sum,
// and among equals the one whose last token begins first, and so on towards the front.
class BruteForce {
 public:
  explicit BruteForce(const UnigramSpec& spec) : spec_(spec) {
    double lowest = std::numeric_limits<double>::infinity();
    for (const auto& entry : spec.vocabulary) {
      last_[entry.text] = &entry;
      lowest = std::min(lowest, entry.score);
    }
    unk_score_ = lowest - 10.0;
  }

  Ids Tokenize(const std::string& word) {
    best_.reset();
    Extend(word, 0, 0.0, {0});
    return best_ ? ToIds(word, best_->cuts) : Ids();
  }

 private:
  struct Path {
    double score;
    std::vector<std::size_t> cuts;  // 0, ends of tokens
  };

  void Extend(const std::string& word, std::size_t at, double score,
              std::vector<std::size_t> cuts) {
    if (at == word.size()) {
      if (!best_ || score > best_->score ||
          (score == best_->score &&
           std::lexicographical_compare(cuts.rbegin(), cuts.rend(), best_->cuts.rbegin(),
                                        best_->cuts.rend()))) {
        best_ = Path{score, cuts};
      }
      return;
    }
    const std::size_t one = CharacterLength(std::string_view(word).substr(at));
    for (std::size_t end = at + 1; end <= word.size(); ++end) {
      const auto token = last_.find(word.substr(at, end - at));
      if (token == last_.end() && end != at + one) continue;
      cuts.push_back(end);
      Extend(word, end, score + (token == last_.end() ? unk_score_ : token->second->score), cuts);
      cuts.pop_back();
    }
  }

  Ids ToIds(const std::string& word, const std::vector<std::size_t>& cuts) const {
    Ids ids;
    std::string unknown;
    const auto flush = [&] {
      if (unknown.empty()) return;
      AppendUnknown(unknown, ids);
      unknown.clear();
    };
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const std::string piece = word.substr(cuts[i], cuts[i + 1] - cuts[i]);
      const auto token = last_.find(piece);
      if (token == last_.end() || token->second->id == spec_.unk_id) {
        if (!spec_.fuse_unk) flush();
        unknown += piece;
        continue;
      }
      flush();
      ids.push_back(token->second->id);
    }
    flush();
    return ids;
  }

  void AppendUnknown(const std::string& text, Ids& ids) const {
    if (const auto whole = last_.find(text); whole != last_.end()) {
      ids.push_back(whole->second->id);
      return;
    }
    Ids bytes;
    for (const char byte : text) {
      const auto token = last_.find(absl::StrFormat("<0x%02X>", static_cast<unsigned char>(byte)));
      if (token != last_.end()) bytes.push_back(token->second->id);
    }
    if (!spec_.byte_fallback || bytes.size() != text.size()) bytes = {spec_.unk_id};
    ids.insert(ids.end(), bytes.begin(), bytes.end());
  }

  const UnigramSpec& spec_;
  std::map<std::string, const UnigramSpec::Entry*> last_;
  double unk_score_ = 0.0;
  std::optional<Path> best_;
};

std::string RandomWord(std::mt19937& random, std::size_t max_characters) {
  static const std::vector<std::string> alphabet = {"a",      "b",      "c",
                                                    "\u00e9", "\u2581", "\U0001F600"};
  std::string word;
  const std::size_t length = 1 + random() % max_characters;
  for (std::size_t i = 0; i < length; ++i) word += alphabet[random() % alphabet.size()];
  return word;
}

// Property: on any vocabulary and any word, ties included. Scores are whole numbers, so that sums
// are exact and equal ones are common.
TEST(UnigramTest, FindsTheBestSegmentationOfAll) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    UnigramSpec spec = Spec({{"<unk>", 0.0}}, seed % 2 == 0);
    spec.fuse_unk = seed % 3 != 0;
    const auto add = [&](std::string text) {
      const auto id = static_cast<std::int32_t>(spec.vocabulary.size());
      // Few different scores: ties; sometimes positive, so that unknown characters may win.
      const double score = static_cast<double>(random() % 8) * (seed % 5 == 0 ? 5.0 : -1.0);
      spec.vocabulary.push_back({std::move(text), id, score});
    };
    const std::size_t num_tokens = random() % 30;
    for (std::size_t i = 0; i < num_tokens; ++i) add(RandomWord(random, 1 + random() % 4));
    for (int byte = 0; byte < 256; ++byte) {
      if (seed % 4 == 0 || random() % 50 != 0) add(absl::StrFormat("<0x%02X>", byte));
    }
    BruteForce expected(spec);
    const auto model = MustCreate(spec);
    ASSERT_NE(model, nullptr);
    for (int i = 0; i < 20; ++i) {
      const std::string word = RandomWord(random, 9);
      EXPECT_EQ(Tokenize(*model, word), expected.Tokenize(word)) << word;
    }
  }
}

TEST(UnigramTest, TakesTheHighestSumNotTheLongestToken) {
  const auto model = MustCreate(Spec({{"<unk>", 0.0},
                                      {"a", 0.0},
                                      {"b", 0.0},
                                      {"c", 0.0},
                                      {"d", 0.0},
                                      {"cd", 1.0},
                                      {"ab", 2.0},
                                      {"abc", 5.0},
                                      {"abcd", 10.0}}));

  EXPECT_EQ(Tokenize(*model, "abcdacdxx"), (Ids{8, 1, 5, 0}));
}

TEST(UnigramTest, TheUnknownTokensOwnTextJoinsUnknownNeighbours) {
  const auto model = MustCreate(Spec({{"<unk>", 0.0}, {"a", -1.0}}));

  EXPECT_EQ(Tokenize(*model, "a<unk>a"), (Ids{1, 0, 1}));
  EXPECT_EQ(Tokenize(*model, "ax<unk>ya"), (Ids{1, 0, 1}));
}

TEST(UnigramTest, BytesStandInOnlyWhenAllAreThere) {
  const auto model =
      MustCreate(Spec({{"<unk>", 0.0}, {"<0xC3>", 0.0}, {"<0xA9>", 0.0}, {"a", -1.0}}, true));

  EXPECT_EQ(Tokenize(*model, "a\u00e9a"), (Ids{3, 1, 2, 3}));
  EXPECT_EQ(Tokenize(*model, "a\u00e9za"), (Ids{3, 0, 3}));  // one run, and z has no byte token
}

TEST(UnigramTest, ALongWordCostsMemoryAndTimeInProportion) {
  UnigramSpec spec = Spec({{"<unk>", 0.0}});
  for (std::size_t length = 1; length <= 16; ++length) {
    spec.vocabulary.push_back({std::string(length, 'a'), static_cast<std::int32_t>(length), -1.0});
  }
  const auto model = MustCreate(std::move(spec));

  const Ids ids = Tokenize(*model, std::string(1 << 20, 'a'));

  EXPECT_EQ(ids, Ids((1 << 20) / 16, 16));
}

TEST(UnigramTest, RefusesWhatCannotWork) {
  EXPECT_EQ(Unigram::Create({}).status().code(), absl::StatusCode::kInvalidArgument);

  UnigramSpec without_unk = Spec({{"a", 0.0}});
  without_unk.unk_id = -1;
  const absl::Status no_unk = Unigram::Create(without_unk).status();
  EXPECT_EQ(no_unk.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(no_unk.message().find("unk_id"), absl::string_view::npos);

  for (const double score :
       {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(Unigram::Create(Spec({{"a", 0.0}, {"b", score}})).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Unigram::Create(Spec({{"\xC3", 0.0}})).status().code(),
            absl::StatusCode::kInvalidArgument);
  UnigramSpec negative = Spec({{"a", 0.0}});
  negative.vocabulary[0].id = -1;
  EXPECT_EQ(Unigram::Create(negative).status().code(), absl::StatusCode::kInvalidArgument);
}

// Property: the trie finds what a map finds.
TEST(ByteTrieTest, FindsEveryEntryAndNothingElse) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<std::string> texts(random() % 300);
    std::map<std::string, std::int32_t> expected;
    std::vector<std::pair<std::string_view, std::int32_t>> entries;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::size_t length = random() % 6;
      for (std::size_t k = 0; k < length; ++k) {
        texts[i] += static_cast<char>(random() % (seed % 2 == 0 ? 3 : 256));
      }
      entries.emplace_back(texts[i], static_cast<std::int32_t>(i));
      if (!texts[i].empty()) expected[texts[i]] = static_cast<std::int32_t>(i);
    }
    ByteTrie trie;
    trie.Build(entries);

    EXPECT_EQ(trie.empty(), expected.empty());
    for (const auto& [text, value] : expected) EXPECT_EQ(trie.Find(text), value);
    for (int i = 0; i < 100; ++i) {
      std::string text;
      for (int k = 0; k < 8; ++k) text += static_cast<char>(random() % (seed % 2 == 0 ? 3 : 256));
      std::vector<std::pair<std::size_t, std::int32_t>> found;
      trie.ForEachPrefix(
          text, [&](std::size_t length, std::int32_t value) { found.emplace_back(length, value); });
      std::vector<std::pair<std::size_t, std::int32_t>> wanted;
      for (std::size_t length = 1; length <= text.size(); ++length) {
        const auto entry = expected.find(text.substr(0, length));
        if (entry != expected.end()) wanted.emplace_back(length, entry->second);
      }
      EXPECT_EQ(found, wanted);
    }
  }
  EXPECT_EQ(ByteTrie().Find("a"), ByteTrie::kNone);
}

}  // namespace
}  // namespace baton::text
