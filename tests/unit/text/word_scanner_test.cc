#include "text/tokenizer/word_scanner.h"

#include <gtest/gtest.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "text/tokenizer/regex.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

struct Known {
  const char* name;
  std::string_view regex;
};

constexpr Known kKnown[] = {
    {"gpt2", kGpt2Regex},
    {"llama3", kLlama3Regex},
    {"qwen2", kQwen2Regex},
    {"tekken", kTekkenRegex},
    {"o200k", kO200kRegex},
    {"deepseek3_words", kDeepseek3Words},
    {"deepseek3_cjk", kDeepseek3Cjk},
    {"digit", kDigit},
    {"three_digits", kThreeDigits},
};

using Words = std::vector<std::string>;

// All matches, and "~" before one that does not begin where the one before ended.
Words Matches(const Regex& regex, std::string_view text) {
  Words words;
  std::size_t done = 0;
  while (const auto match = regex.Find(text, done)) {
    words.emplace_back(match->begin > done ? "~" : "");
    words.back() += text.substr(match->begin, match->end - match->begin);
    done = match->end;
  }
  return words;
}

// A code point that PCRE2's tables and ICU's both know.
char32_t RandomCodePoint(std::mt19937& random) {
  while (true) {
    const std::uint32_t limits[] = {0x80, 0x250, 0x3100, 0x10000, 0x20000, 0x110000};
    const char32_t c = random() % limits[random() % 6];
    if (c >= 0xD800 && c < 0xE000) continue;
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(c), age);
    if (age[0] <= 14) return c;  // 0: not assigned in any version
  }
}

// Text of what the patterns tell apart, in runs.
std::string RandomText(std::mt19937& random) {
  static const std::vector<std::string> parts = {
      " ",       "  ",      "\t",      "\n",     "\r\n",         "\u3000",  "\u0085",     "\u200b",
      "a",       "B",       "word",    "WORD",   "Word",         "'s",      "'S",         "'ll",
      "'Re",     "'\u017f", "'",       "''",     "\u00e9",       "e\u0301", "\u0301",     "\u0903",
      "\u01c5",  "\u02b0",  "\u6f22",  "\u304b", "\u30a2\u30fc", "\u00df",  "\u0416",     "\u0436",
      "1",       "1234",    "\u0661",  "\u00b2", "\u2167",       "!",       "?!",         "/",
      "//",      "_",       "$",       "+",      "\u2014",       "\u20ac",  "\U0001F600", "\u200d",
      "\x01",    "\u0000",  "\u00ad",  "\ue000", "\U000E0001",   "\ufffd",  "\u180e",     "\u1680",
      "A\u02b0", "\u6f22A", "\u0301A", "-a",     "<b",           "\u2028",
  };
  std::string text;
  const std::size_t count = random() % 16;
  for (std::size_t i = 0; i < count; ++i) {
    if (random() % 5 == 0) {
      AppendUtf8(RandomCodePoint(random), text);
    } else {
      text += parts[random() % parts.size()];
    }
  }
  return text;
}

class WordScannerTest : public ::testing::TestWithParam<Known> {};

// Property: a scanner finds what the regular expression finds.
TEST_P(WordScannerTest, FindsWhatTheRegexFinds) {
  ASSERT_NE(FindWordScanner(GetParam().regex), nullptr);
  const auto scanner = Regex::Compile(GetParam().regex);
  const auto pcre = Regex::CompileForPcre(GetParam().regex);
  ASSERT_TRUE(scanner.ok() && pcre.ok());
  for (unsigned seed = 0; seed < 40000; ++seed) {
    std::mt19937 random(seed);
    const std::string text = RandomText(random);
    ASSERT_EQ(Matches(*scanner, text), Matches(*pcre, text)) << "seed " << seed << ": " << text;
  }
}

// Each character by itself, and with a letter behind and a small letter in front.
TEST_P(WordScannerTest, KnowsEveryCharacter) {
  const auto scanner = Regex::Compile(GetParam().regex);
  const auto pcre = Regex::CompileForPcre(GetParam().regex);
  ASSERT_TRUE(scanner.ok() && pcre.ok());
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    if (c >= 0x30000 && c < 0xE0000)
      continue;  // nothing there in Unicode 14 but what planes 2, 14 have
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(c), age);
    if (age[0] > 14) continue;
    std::string text;
    AppendUtf8(c, text);
    text = "x" + text + "X" + text;
    ASSERT_EQ(Matches(*scanner, text), Matches(*pcre, text)) << std::hex << static_cast<int>(c);
  }
}

// Long texts of few kinds of characters cost time in proportion, wherever a match may end.
TEST_P(WordScannerTest, TimeIsInProportionToLength) {
  const auto scanner = Regex::Compile(GetParam().regex);
  ASSERT_TRUE(scanner.ok());
  const auto seconds = [&](const std::string& part, std::size_t size) {
    std::string text;
    while (text.size() < size) text += part;
    const auto start = std::chrono::steady_clock::now();
    std::size_t at = 0;
    while (const auto match = scanner->Find(text, at)) at = match->end;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const std::string part : {"a", "A", "aA", " ", "\n", " \n", "7", "!", "' ", "\u0301", "\x01",
                                 "A\u0301", "\u6f22", "\u6f22 ", "/\n", "\t"}) {
    const double small = std::min(seconds(part, 100'000), seconds(part, 100'000));
    const double large = std::min(seconds(part, 1'600'000), seconds(part, 1'600'000));
    // 16 times the text; quadratic time would be 256 times.
    EXPECT_LT(large, 100 * small + 0.02) << part;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WordScannerTest, ::testing::ValuesIn(kKnown),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(WordScannersTest, KnowsLettersYoungerThanPcre) {
  // U+1E4D0, a letter since Unicode 15.
  if (u_charType(0x1E4D0) == U_UNASSIGNED) GTEST_SKIP() << "this ICU is older than Unicode 15";
  const auto scanner = Regex::Compile(kGpt2Regex);

  EXPECT_EQ(Matches(*scanner, "a\U0001E4D0b"), (Words{"a\U0001E4D0b"}));
}

TEST(WordScannersTest, OtherPatternsHaveNone) {
  EXPECT_EQ(FindWordScanner("\\p{L}+"), nullptr);
  EXPECT_EQ(FindWordScanner(""), nullptr);
}

}  // namespace
}  // namespace baton::text
