// Building tokenizers from small files made up here: what each part does, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/text/support.h"
#include "text/tokenizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/regex.h"

namespace baton::text {
namespace {

using testing::Json;
using Ids = std::vector<std::int32_t>;

// A tokenizer.json whose words are a, b, ab, bc, abc, space and a few more.
Json SmallFile() {
  return Json::parse(R"({
    "added_tokens": [{"id": 20, "content": "<s>", "special": true, "normalized": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE",
      "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "Ġ": 6, "-": 7, "1": 8},
      "merges": [["b", "c"], ["a", "b"]]}})");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Build(const Json& file) {
  checkpoint::TextAssets assets;
  assets.tokenizer_json = file.dump();
  return Tokenizer::Create(assets);
}

std::unique_ptr<Tokenizer> MustBuild(const Json& file) {
  auto built = Build(file);
  EXPECT_TRUE(built.ok()) << built.status();
  return built.ok() ? *std::move(built) : nullptr;
}

TEST(TokenizerBuildTest, MergesByRankInBothSpellings) {
  Json file = SmallFile();
  const Ids expected = {0, 4, 3};  // "abc" is a + bc, since bc ranks first

  EXPECT_EQ(MustBuild(file)->Encode("abcab"), expected);
  file["model"]["merges"] = {"b c", "a b"};
  EXPECT_EQ(MustBuild(file)->Encode("abcab"), expected);
}

TEST(TokenizerBuildTest, IgnoreMergesTakesAWholeWord) {
  Json file = SmallFile();
  file["model"]["ignore_merges"] = true;

  EXPECT_EQ(MustBuild(file)->Encode("abc"), (Ids{5}));
}

TEST(TokenizerBuildTest, UnknownBytesVanishOrBecomeTheUnknownToken) {
  Json file = SmallFile();
  EXPECT_EQ(MustBuild(file)->Encode("azz"), (Ids{0}));
  EXPECT_EQ(MustBuild(file)->Encode("azzb"), (Ids{3}));  // the neighbours meet, as in the reference

  file["model"]["unk_token"] = "-";
  EXPECT_EQ(MustBuild(file)->Encode("azzb"), (Ids{0, 7, 7, 1}));
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(MustBuild(file)->Encode("azzb"), (Ids{0, 7, 1}));
}

TEST(TokenizerBuildTest, AddedTokensTakeTheSpaceTheyAreToldTo) {
  Json file = SmallFile();
  EXPECT_EQ(MustBuild(file)->Encode("a <s> b"), (Ids{0, 6, 20, 6, 1}));

  file["added_tokens"][0]["lstrip"] = true;
  EXPECT_EQ(MustBuild(file)->Encode("a <s> b"), (Ids{0, 20, 6, 1}));
  file["added_tokens"][0]["rstrip"] = true;
  EXPECT_EQ(MustBuild(file)->Encode("a \n<s> \tb"), (Ids{0, 20, 1}));
}

TEST(TokenizerBuildTest, SingleWordTokensStandAlone) {
  Json file = SmallFile();
  file["added_tokens"] = Json::parse(R"([{"id": 20, "content": "ca", "single_word": true}])");

  EXPECT_EQ(MustBuild(file)->Encode("ca cab ca"), (Ids{20, 6, 2, 3, 6, 20}));
}

TEST(TokenizerBuildTest, TheLongestOfTheLeftmostAddedTokensWins) {
  Json file = SmallFile();
  file["added_tokens"] = Json::parse(R"([{"id": 20, "content": "ca", "normalized": false},
    {"id": 21, "content": "cab", "normalized": false}, {"id": 22, "content": "abb", "normalized": false}])");

  EXPECT_EQ(MustBuild(file)->Encode("cabbca"), (Ids{21, 1, 20}));
}

TEST(TokenizerBuildTest, AnAddedTokenOfTheVocabularyHasItsIdThere) {
  Json file = SmallFile();
  file["added_tokens"] = Json::parse(R"([{"id": 20, "content": "ab", "special": true}])");

  EXPECT_EQ(MustBuild(file)->Encode("cab"), (Ids{2, 3}));
  EXPECT_TRUE(MustBuild(file)->IsSpecial(3));
}

TEST(TokenizerBuildTest, ThePostProcessorAddsItsTokens) {
  Json file = SmallFile();
  file["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [20], "tokens": ["<s>"]}}})");

  const auto tokenizer = MustBuild(file);

  EXPECT_EQ(tokenizer->Encode("a", {.add_special_tokens = true}), (Ids{20, 0, 20}));
  EXPECT_EQ(tokenizer->Encode("a"), (Ids{0}));
}

TEST(TokenizerBuildTest, PrefixSpaceGoesBeforeTheText) {
  Json file = SmallFile();
  file["pre_tokenizer"]["add_prefix_space"] = true;

  EXPECT_EQ(MustBuild(file)->Encode("a"), (Ids{6, 0}));
  EXPECT_EQ(MustBuild(file)->Encode(" a"), (Ids{6, 0}));
}

TEST(TokenizerBuildTest, SplitBehavesInAllItsWays) {
  using Words = std::vector<std::string_view>;
  const auto split = [](SplitBehavior behavior, bool invert) {
    Pieces pieces;
    pieces.views = {"a-b--c-"};
    MakeSplit(*Regex::Compile("-"), behavior, invert)->Apply(pieces);
    return pieces.views;
  };

  EXPECT_EQ(split(SplitBehavior::kIsolated, false), (Words{"a", "-", "b", "-", "-", "c", "-"}));
  EXPECT_EQ(split(SplitBehavior::kRemoved, false), (Words{"a", "b", "c"}));
  EXPECT_EQ(split(SplitBehavior::kRemoved, true), (Words{"-", "-", "-", "-"}));
  EXPECT_EQ(split(SplitBehavior::kMergedWithPrevious, false), (Words{"a-", "b-", "-", "c-"}));
  EXPECT_EQ(split(SplitBehavior::kMergedWithNext, false), (Words{"a", "-b", "-", "-c", "-"}));
  EXPECT_EQ(split(SplitBehavior::kContiguous, false), (Words{"a", "-", "b", "--", "c", "-"}));
}

TEST(TokenizerBuildTest, RefusesWhatIsNotSupportedByName) {
  struct Case {
    const char* pointer;
    const char* value;
    const char* named;
  };
  for (const Case& c : {
           Case{"/model/type", R"("WordPiece")", "supported are BPE, Unigram"},
           Case{"/model/continuing_subword_prefix", R"("##")", "continuing_subword_prefix"},
           Case{"/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix"},
           Case{"/model/dropout", "0.1", "dropout"},
           Case{"/normalizer", R"({"type": "BertNormalizer"})",
                "BertNormalizer; supported are NFC"},
           Case{"/normalizer", R"({"lowercase": true})", "normalizer"},
           Case{"/pre_tokenizer", R"({"type": "UnicodeScripts"})", "UnicodeScripts; supported are"},
           Case{"/decoder", R"({"type": "WordPiece"})", "WordPiece; supported are ByteLevel"},
           Case{"/decoder", "null", "decoder"},
           Case{"/decoder",
                R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})",
                "ByteFallback at that place"},
           Case{"/normalizer",
                R"({"type": "Sequence", "normalizers": [
                    {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"},
                    {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"},
                    {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"}]})",
                "4096 times as long"},
           Case{"/pre_tokenizer",
                R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"},
                    {"type": "ByteLevel"}, {"type": "ByteLevel"}, {"type": "ByteLevel"},
                    {"type": "ByteLevel"}]})",
                "more than 4 ByteLevel"},
           Case{"/post_processor", R"({"type": "Other"})", "Other; supported are Template"},
           Case{"/pre_tokenizer",
                R"({"type": "Split", "pattern": {"Regex": "[[:graph:]]"}, "behavior": "Isolated"})",
                "[:graph:]"},
           Case{"/pre_tokenizer",
                R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Dropped"})",
                "Dropped; supported are Removed"},
       }) {
    SCOPED_TRACE(c.named);
    Json file = SmallFile();
    file[Json::json_pointer(c.pointer)] = Json::parse(c.value);

    const auto built = Build(file);

    EXPECT_EQ(built.status().code(), absl::StatusCode::kFailedPrecondition) << built.status();
    EXPECT_NE(built.status().message().find(c.named), absl::string_view::npos) << built.status();
  }
}

TEST(TokenizerBuildTest, RefusesDamagedFiles) {
  struct Case {
    const char* pointer;
    const char* value;
  };
  for (const Case& c : {
           Case{"/model/merges", R"([["a", "z"]])"},
           Case{"/model/merges", R"(["ab"])"},
           Case{"/model/merges", R"([["a", "c"]])"},  // "ac" is no token
           Case{"/model/vocab/a", "-1"},
           Case{"/model/vocab/a", "1"},  // the id of "b"
           Case{"/model/vocab/a", "2000000000"},
           Case{"/added_tokens/0/id", "2000000000"},
           Case{"/added_tokens/0/id", "1"},  // the id of "b"
           Case{"/added_tokens/0/special", "1"},
           Case{"/model/byte_fallback", R"("yes")"},
           Case{"/model/unk_token", R"("<unk>")"},  // no token, and needed
           Case{"/normalizer", R"({"type": "Prepend"})"},
           Case{"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "/////w=="})"},
           Case{"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})"},
           Case{"/pre_tokenizer", R"({"type": "Split", "behavior": "Isolated"})"},
           Case{"/model", "null"},
       }) {
    SCOPED_TRACE(std::string(c.pointer) + " = " + c.value);
    Json file = SmallFile();
    file[Json::json_pointer(c.pointer)] = Json::parse(c.value);

    EXPECT_EQ(Build(file).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

checkpoint::TextAssets SmallGguf() {
  checkpoint::TextAssets assets;
  assets.gguf.emplace();
  assets.gguf->model = "gpt2";
  assets.gguf->pre = "gpt-2";
  assets.gguf->tokens = {"<s>", "a", "b", "ab", "<u>"};
  using checkpoint::TokenType;
  assets.gguf->types = {TokenType::kControl, TokenType::kNormal, TokenType::kNormal,
                        TokenType::kNormal, TokenType::kUserDefined};
  assets.gguf->merges = {"a b"};
  assets.bos_id = 0;
  return assets;
}

TEST(TokenizerBuildTest, AGgufVocabularyHasItsSpecialTokens) {
  checkpoint::TextAssets assets = SmallGguf();
  assets.gguf->add_bos = true;

  const auto tokenizer = Tokenizer::Create(assets);

  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->Encode("ab<s><u>", {.add_special_tokens = true}), (Ids{0, 3, 0, 4}));
  EXPECT_EQ((*tokenizer)->Decode(Ids{0, 3, 4}, /*skip_special_tokens=*/true), "ab<u>");
}

TEST(TokenizerBuildTest, NeverGuessesAGgufPreTokenizer) {
  checkpoint::TextAssets assets = SmallGguf();
  assets.gguf->pre = "brand-new";

  const auto tokenizer = Tokenizer::Create(assets);

  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(tokenizer.status().message().find("brand-new"), absl::string_view::npos);
}

TEST(TokenizerBuildTest, WithoutAVocabularyThereIsNoTokenizer) {
  EXPECT_EQ(Tokenizer::Create({}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::text
