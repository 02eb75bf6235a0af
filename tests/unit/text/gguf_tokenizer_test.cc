#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "tests/unit/text/support.h"
#include "text/tokenizer.h"

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

// Small models trained with SentencePiece 0.2.3 and what it makes of strings: characters mapped,
// spaces removed or kept, bytes to fall back on or not, pieces unused or user-defined. Made for
// this test.
TEST(GgufTokenizerTest, AgreesWithSentencePiece) {
  std::ifstream file(BATON_SOURCE_DIR "/tests/unit/text/data/sentencepiece.jsonl");
  int num_models = 0;
  for (std::string line; std::getline(file, line); ++num_models) {
    const Json model = Json::parse(line);
    SCOPED_TRACE(model["name"].get<std::string>());
    TextAssets assets;
    checkpoint::GgufVocabulary& gguf = assets.gguf.emplace();
    gguf.model = model["model"];
    gguf.tokens = model["tokens"].get<std::vector<std::string>>();
    gguf.scores = model["scores"].get<std::vector<float>>();
    for (const int type : model["types"]) gguf.types.push_back(static_cast<TokenType>(type));
    for (std::size_t id = 0; id < gguf.tokens.size(); ++id) {
      if (gguf.types[id] != TokenType::kUserDefined) continue;  // spelled as in text
      gguf.tokens[id] = absl::StrReplaceAll(gguf.tokens[id], {{"\u2581", " "}});
    }
    gguf.unk_id = model["unk_id"].get<std::int32_t>();
    gguf.add_space_prefix = model["add_space_prefix"];
    gguf.remove_extra_whitespaces = model["remove_extra_whitespaces"];
    ASSERT_TRUE(
        absl::Base64Unescape(model["charsmap"].get<std::string>(), &gguf.precompiled_charsmap));
    const auto tokenizer = MustCreate(assets);
    ASSERT_NE(tokenizer, nullptr);
    for (const Json& one : model["cases"]) {
      EXPECT_EQ(tokenizer->Encode(one[0].get<std::string>(), {.parse_special = false}),
                one[1].get<Ids>())
          << one[0];
    }
  }
  EXPECT_EQ(num_models, 8);
}

}  // namespace
}  // namespace baton::text
