#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/unit/text/support.h"
#include "text/tokenizer.h"
#include "text/tokenizer/builders.h"
#include "text/tokenizer/regex.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

using checkpoint::TextAssets;
using checkpoint::TokenType;
using testing::Json;
using Ids = std::vector<std::int32_t>;

std::unique_ptr<Tokenizer> MustCreate(const TextAssets& assets) {
  auto created = Tokenizer::Create(assets);
  EXPECT_TRUE(created.ok()) << created.status();
  return created.ok() ? *std::move(created) : nullptr;
}

struct SentencePieceModel {
  std::string name;
  TextAssets assets;
  std::vector<std::pair<std::string, Ids>> cases;
};

// Small models trained with SentencePiece 0.2.3 and what it makes of strings: characters mapped,
// spaces removed or kept, bytes to fall back on or not, pieces unused or user-defined. Made for
// these tests by data/make_sentencepiece.py.
std::vector<SentencePieceModel> ReadModels() {
  std::vector<SentencePieceModel> models;
  std::ifstream file(BATON_SOURCE_DIR "/tests/unit/text/data/sentencepiece.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line);
    SentencePieceModel& model = models.emplace_back();
    model.name = json["name"];
    checkpoint::GgufVocabulary& gguf = model.assets.gguf.emplace();
    gguf.model = json["model"];
    gguf.tokens = json["tokens"].get<std::vector<std::string>>();
    gguf.scores = json["scores"].get<std::vector<float>>();
    for (const int type : json["types"]) gguf.types.push_back(static_cast<TokenType>(type));
    for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
      if (gguf.types[id] != TokenType::kUserDefined) continue;  // spelled as in text
      gguf.tokens[id] = absl::StrReplaceAll(gguf.tokens[id], {{"\u2581", " "}});
    }
    gguf.unk_id = json["unk_id"].get<std::int32_t>();
    gguf.add_space_prefix = json["add_space_prefix"];
    gguf.remove_extra_whitespaces = json["remove_extra_whitespaces"];
    EXPECT_TRUE(
        absl::Base64Unescape(json["charsmap"].get<std::string>(), &gguf.precompiled_charsmap));
    for (const Json& one : json["cases"]) model.cases.emplace_back(one[0], one[1].get<Ids>());
  }
  EXPECT_EQ(models.size(), 8u);
  return models;
}

TEST(GgufTokenizerTest, AgreesWithSentencePiece) {
  for (const SentencePieceModel& model : ReadModels()) {
    SCOPED_TRACE(model.name);
    const auto tokenizer = MustCreate(model.assets);
    ASSERT_NE(tokenizer, nullptr);
    for (const auto& [text, ids] : model.cases) {
      EXPECT_EQ(tokenizer->Encode(text, {.parse_special = false}), ids) << text;
    }
  }
}

// The fastest of three tries, so that a busy machine disturbs little.
double EncodeSeconds(const Tokenizer& tokenizer, const std::string& part, std::size_t size) {
  std::string text;
  while (text.size() < size) text += part;
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = tokenizer.Encode(text, {.parse_special = false});
    EXPECT_LE(ids.size(), 2 * text.size());
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// Texts that nothing cuts into words cost time in proportion to their length, for every kind.
TEST(GgufTokenizerTest, TimeIsInProportionToLength) {
  std::vector<SentencePieceModel> models = ReadModels();
  models.push_back({"tiny", testing::TinyAssets(), {}});
  for (const SentencePieceModel& model : models) {
    SCOPED_TRACE(model.name);
    const auto tokenizer = MustCreate(model.assets);
    ASSERT_NE(tokenizer, nullptr);
    for (const std::string part : {"a", " ", "\n", "7", "ab", "aA", "\u2581", "e\u2581", "\u6f22",
                                   "!", "\x01", "<x>", " a"}) {
      const double small = EncodeSeconds(*tokenizer, part, 40'000);
      const double large = EncodeSeconds(*tokenizer, part, 320'000);
      // 8 times the text; quadratic time would be 64 times.
      EXPECT_LT(large, 30 * small + 0.05) << part;
    }
  }
}

TextAssets SmallSentencePiece() {
  TextAssets assets;
  checkpoint::GgufVocabulary& gguf = assets.gguf.emplace();
  gguf.model = "llama";
  gguf.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581ab"};
  gguf.types.assign(gguf.tokens.size(), TokenType::kNormal);
  gguf.types[0] = TokenType::kUnknown;
  gguf.types[1] = gguf.types[2] = TokenType::kControl;
  gguf.scores = {0, 0, 0, -10, -11, -12, -1, -2};
  gguf.unk_id = 0;
  gguf.eos_id = 2;
  gguf.add_space_prefix = true;
  assets.bos_id = 1;
  return assets;
}

TEST(GgufTokenizerTest, DecodingTakesTheSpaceInFrontAwayAgain) {
  const auto tokenizer = MustCreate(SmallSentencePiece());

  EXPECT_EQ(tokenizer->Encode("ab ab"), (Ids{7, 7}));
  EXPECT_EQ(tokenizer->Decode(Ids{7, 7}, false), "ab ab");
}

TEST(GgufTokenizerTest, BeginsAndEndsAsTheFileSays) {
  TextAssets assets = SmallSentencePiece();
  assets.gguf->add_bos = true;
  assets.gguf->add_eos = true;
  assets.eos_ids = {0, 2};  // ascending; the token behind a text is the file's eos

  EXPECT_EQ(MustCreate(assets)->Encode("ab", {.add_special_tokens = true}), (Ids{1, 7, 2}));
}

TEST(GgufTokenizerTest, Phi3sSpecialTokensTakeTheSpaceBehindThem) {
  TextAssets assets = SmallSentencePiece();
  assets.gguf->tokens[2] = "<|end|>";
  assets.gguf->special_tokens_strip_right = true;
  const auto tokenizer = MustCreate(assets);

  EXPECT_EQ(tokenizer->Encode("<|end|>\n ab"), (Ids{2, 7}));
  EXPECT_EQ(tokenizer->Encode("<s> ab"), (Ids{1, 3, 7}));
}

TEST(GgufTokenizerTest, WithoutScoresTheMergesDecide) {
  TextAssets assets = SmallSentencePiece();
  assets.gguf->scores.assign(8, 0.0F);
  assets.gguf->merges = {"a b", "\u2581 ab"};

  EXPECT_EQ(MustCreate(assets)->Encode("ab b"), (Ids{7, 3, 5}));
}

TEST(GgufTokenizerTest, RefusesWhatWouldBeAGuess) {
  struct Case {
    const char* named;
    void (*change)(checkpoint::GgufVocabulary&);
    absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  };
  using Vocabulary = checkpoint::GgufVocabulary;
  constexpr auto kUnsupported = absl::StatusCode::kFailedPrecondition;
  for (const Case& c : {
           Case{"\"rwkv\"; supported are gpt2", [](Vocabulary& v) { v.model = "rwkv"; },
                kUnsupported},
           Case{"\"brand-new\"; supported are: a.x-4.0, bailingmoe",
                [](Vocabulary& v) {
                  v.model = "gpt2";
                  v.pre = "brand-new";
                },
                kUnsupported},
           Case{"tokenizer.ggml.pre is missing", [](Vocabulary& v) { v.model = "gpt2"; },
                kUnsupported},
           Case{"tokenizer.ggml.pre is \"default\"",
                [](Vocabulary& v) {
                  v.model = "gpt2";
                  v.pre = "default";
                },
                kUnsupported},
           Case{"scores is missing", [](Vocabulary& v) { v.scores.clear(); }, kUnsupported},
           Case{"two tokens \"a\": 4 and 5", [](Vocabulary& v) { v.tokens[5] = "a"; }},
           Case{"7 token types", [](Vocabulary& v) { v.types.pop_back(); }},
           Case{"7 scores", [](Vocabulary& v) { v.scores.pop_back(); }},
           Case{"<0xNN>", [](Vocabulary& v) { v.types[5] = TokenType::kByte; }},
           Case{"unknown token id out of range: 8", [](Vocabulary& v) { v.unk_id = 8; }},
           Case{"not finite", [](Vocabulary& v) { v.scores[5] = NAN; }},
           Case{"not valid UTF-8", [](Vocabulary& v) { v.tokens[5] = "\xFF"; }},
           Case{"neither an unknown token nor a token for each byte",
                [](Vocabulary& v) {
                  v.unk_id.reset();
                  v.types[0] = TokenType::kControl;
                },
                kUnsupported},
           Case{"precompiled_charsmap", [](Vocabulary& v) { v.precompiled_charsmap = "abc"; }},
           Case{"a table of 8 bytes in 4",
                [](Vocabulary& v) { v.precompiled_charsmap = std::string("\x08\0\0\0abcd", 8); }},
           Case{"'tokenizer.ggml.scores'",
                [](Vocabulary& v) {
                  v.model = "t5";
                  v.scores.clear();
                }},
       }) {
    SCOPED_TRACE(c.named);
    TextAssets assets = SmallSentencePiece();
    c.change(*assets.gguf);

    const auto created = Tokenizer::Create(assets);

    EXPECT_EQ(created.status().code(), c.code) << created.status();
    EXPECT_NE(created.status().message().find(c.named), absl::string_view::npos)
        << created.status();
  }
}

TEST(GgufTokenizerTest, EveryKnownPreTokenizerCanBeBuilt) {
  const std::vector<std::string> names = absl::StrSplit(KnownGgufPreTokenizers(), ", ");
  EXPECT_GT(names.size(), 50u);
  for (const std::string& name : names) {
    TextAssets assets = SmallSentencePiece();
    assets.gguf->model = "gpt2";
    assets.gguf->pre = name;
    assets.gguf->merges = {"a b"};

    EXPECT_EQ(MustCreate(assets)->Encode("ab"), (Ids{6})) << name;
  }
}

// Kimi's words are of Han characters or of others, although both are letters.
TEST(GgufTokenizerTest, KimiKeepsHanCharactersApart) {
  const GgufPreTokenizer* kimi = FindGgufPreTokenizer("kimi-k2");
  ASSERT_NE(kimi, nullptr);
  const auto regex = Regex::Compile(kimi->regexes.front());
  ASSERT_TRUE(regex.ok()) << regex.status();
  const std::string text = " ab\u6f22\u5b57\u304bcD's 1234!\n/";
  std::vector<std::string> words;
  std::size_t at = 0;
  while (const auto match = regex->Find(text, at)) {
    words.push_back(text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }

  EXPECT_EQ(words, (std::vector<std::string>{" ab", "\u6f22\u5b57", "\u304bc", "D's", " ", "123",
                                             "4", "!\n", "/"}));
}

// Any table, however damaged, is read within its bounds and gives valid UTF-8 or is refused.
TEST(GgufTokenizerTest, SurvivesDamagedCharsmaps) {
  const std::vector<SentencePieceModel> models = ReadModels();
  ASSERT_FALSE(models.front().assets.gguf->precompiled_charsmap.empty());
  int num_accepted = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    TextAssets assets = models.front().assets;
    std::string& charsmap = assets.gguf->precompiled_charsmap;
    for (int i = 0; i < 20; ++i) {
      charsmap[4 + random() % (charsmap.size() - 4)] = static_cast<char>(random() % 256);
    }
    const auto tokenizer = Tokenizer::Create(assets);
    if (!tokenizer.ok()) continue;
    ++num_accepted;
    for (const auto& [text, ids] : models.front().cases) {
      const Ids some = (*tokenizer)->Encode(text, {.parse_special = false});
      EXPECT_TRUE(IsValidUtf8((*tokenizer)->Decode(some, false)));
    }
  }
  EXPECT_GT(num_accepted, 0);
}

}  // namespace
}  // namespace baton::text
