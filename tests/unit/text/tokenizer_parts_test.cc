// What Hugging Face's tokenizers make of each part of a tokenizer.json by itself, and of small
// files that put parts together: tests/golden/tokenizer_parts.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/text/support.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer/tokenizer_json.h"

namespace baton::text {
namespace {

using testing::Json;

using Ids = std::vector<std::int32_t>;

std::vector<Json> Lines(std::string_view kind) {
  std::vector<Json> lines;
  for (Json& line : testing::ReadGolden("tokenizer_parts/parts.jsonl")) {
    if (line["kind"] == kind) lines.push_back(std::move(line));
  }
  EXPECT_FALSE(lines.empty()) << kind;
  return lines;
}

std::string Name(const Json& line) { return line["part"].dump().substr(0, 300); }

TEST(TokenizerPartsTest, NormalizersRewriteAsTheReferenceDoes) {
  for (const Json& line : Lines("normalizer")) {
    SCOPED_TRACE(Name(line));
    const std::string file = Json{{"normalizer", line["part"]}}.dump();
    simdjson::dom::parser parser;
    Pipeline pipeline;
    const absl::Status status = AddNormalizers(parser.parse(file), pipeline);
    ASSERT_TRUE(status.ok()) << status;
    for (const Json& example : line["cases"]) {
      bool keeps_front = true;
      EXPECT_EQ(pipeline.Normalize(example[0].get<std::string>(), keeps_front), example[1])
          << example[0];
    }
  }
}

TEST(TokenizerPartsTest, PreTokenizersCutAsTheReferenceDoes) {
  for (const Json& line : Lines("pre_tokenizer")) {
    SCOPED_TRACE(Name(line));
    const std::string file = Json{{"pre_tokenizer", line["part"]}}.dump();
    simdjson::dom::parser parser;
    Pipeline pipeline;
    const absl::Status status =
        AddPreTokenizers(parser.parse(file), /*model_takes_bytes=*/false, pipeline);
    ASSERT_TRUE(status.ok()) << status;
    for (const Json& example : line["cases"]) {
      const std::string text = example[0];
      Pieces pieces;
      pieces.views.push_back(text);
      for (const auto& step : pipeline.pre_tokenizers) step->Apply(pieces);
      EXPECT_EQ(std::vector<std::string>(pieces.views.begin(), pieces.views.end()),
                example[1].get<std::vector<std::string>>())
          << example[0];
    }
  }
}

// A file whose vocabulary are `tokens`, and its decoder `decoder`.
std::string FileWith(const Json& decoder, const std::map<std::string, int>& tokens) {
  return Json{{"decoder", decoder},
              {"model", {{"type", "BPE"}, {"vocab", tokens}, {"merges", Json::array()}}}}
      .dump();
}

TEST(TokenizerPartsTest, DecodersJoinAsTheReferenceDoes) {
  for (const Json& line : Lines("decoder")) {
    SCOPED_TRACE(Name(line));
    std::map<std::string, int> tokens;
    for (const Json& example : line["cases"]) {
      for (const std::string token : example[0]) {
        tokens.try_emplace(token, static_cast<int>(tokens.size()));
      }
    }
    checkpoint::TextAssets assets;
    assets.tokenizer_json = FileWith(line["part"], tokens);
    const auto tokenizer = Tokenizer::Create(assets);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const Json& example : line["cases"]) {
      Ids ids;
      for (const std::string token : example[0]) ids.push_back(tokens[token]);
      EXPECT_EQ((*tokenizer)->Decode(ids, /*skip_special_tokens=*/false), example[1]) << example[0];
    }
  }
}

TEST(TokenizerPartsTest, WholeFilesDoAsTheReferenceDoes) {
  for (const Json& line : Lines("file")) {
    SCOPED_TRACE(Name(line));
    checkpoint::TextAssets assets;
    assets.tokenizer_json = line["part"].dump();
    const auto tokenizer = Tokenizer::Create(assets);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const Json& example : line["cases"]) {
      SCOPED_TRACE(example["text"].dump());
      const std::string text = example["text"];
      const Ids ids = example["ids"];
      const Ids special = example["ids_special"];
      EXPECT_EQ((*tokenizer)->Encode(text), ids);
      EXPECT_EQ((*tokenizer)->Encode(text, {.add_special_tokens = true}), special);
      EXPECT_EQ((*tokenizer)->Decode(ids, false), example["decoded"]);
      EXPECT_EQ((*tokenizer)->Decode(special, true), example["decoded_skip"]);
    }
  }
}

// Whatever parts a file has: models, steps and added tokens that take white space along.
TEST(TokenizerPartsTest, TimeGrowsAsTheTextDoes) {
  for (const Json& line : Lines("file")) {
    SCOPED_TRACE(Name(line));
    checkpoint::TextAssets assets;
    Json file = line["part"];
    for (Json& token : file["added_tokens"]) token["rstrip"] = token["content"] == "\n";
    assets.tokenizer_json = file.dump();
    const auto tokenizer = Tokenizer::Create(assets);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const char* unit : {"a", "x\n", "\n", "x \u4f60", "e\u0301", "<mask> "}) {
      EXPECT_LE(testing::TimeOfFourfoldText(**tokenizer, unit), 8) << Json(unit).dump();
    }
  }
}

}  // namespace
}  // namespace baton::text
