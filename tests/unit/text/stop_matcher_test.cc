#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace baton::text {
namespace {

using Stops = std::vector<std::string>;

struct Expected {
  std::string text;
  std::optional<std::size_t> match;
};

// The definition: the occurrence that ends first, of those that end together the longest.
Expected SearchWhole(const std::string& text, const Stops& stops, bool include) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].empty() || stops[i].size() > end) continue;
      if (text.compare(end - stops[i].size(), stops[i].size(), stops[i]) != 0) continue;
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, include ? end : end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

std::string RandomString(std::mt19937& random, std::size_t max_size) {
  std::string text(random() % (max_size + 1), ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % 3);
  return text;
}

// Property: however the text is cut, the output is that of a search in the whole text, and nothing
// is shown early that a later byte could take back.
TEST(StopMatcherTest, EqualsASearchInTheWholeTextUnderRandomCuts) {
  for (unsigned seed = 0; seed < 20000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Stops stops(random() % 4);
    for (std::string& stop : stops) stop = RandomString(random, 5);
    const std::string text = RandomString(random, 40);
    const bool include = random() % 2 == 0;
    const Expected expected = SearchWhole(text, stops, include);
    StopMatcher matcher(stops, include);

    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t count = 1 + random() % 6;
      shown += matcher.Append(text.substr(at, count));
      at += count;
      ASSERT_EQ(shown, expected.text.substr(0, shown.size()));
      // What is held back is a beginning of a stop string, never more.
      if (!matcher.stopped()) {
        const std::string held =
            text.substr(shown.size(), std::min(at, text.size()) - shown.size());
        const bool is_prefix = std::any_of(
            stops.begin(), stops.end(),
            [&](const std::string& stop) { return stop.compare(0, held.size(), held) == 0; });
        ASSERT_TRUE(held.empty() || is_prefix) << held;
      }
    }
    shown += matcher.Flush();

    ASSERT_EQ(shown, expected.text);
    ASSERT_EQ(matcher.match(), expected.match);
  }
}

TEST(StopMatcherTest, ShowsNothingOfAStopStringThatComesInPieces) {
  StopMatcher matcher(Stops{"</answer>"});

  EXPECT_EQ(matcher.Append("42</a"), "42");
  EXPECT_EQ(matcher.Append("b"), "</ab");
  EXPECT_EQ(matcher.Append("</answer"), "");
  EXPECT_EQ(matcher.Append("> and more"), "");
  EXPECT_EQ(matcher.match(), 0u);
  EXPECT_EQ(matcher.Append("more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, CanIncludeTheStopString) {
  StopMatcher matcher(Stops{"END"}, /*include_stop_str_in_output=*/true);

  EXPECT_EQ(matcher.Append("xE"), "xE");
  EXPECT_EQ(matcher.Append("NDy"), "ND");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcherTest, NeverCutsACharacter) {
  StopMatcher matcher(Stops{"\u00e9!"});

  EXPECT_EQ(matcher.Append("\u00e8"), "\u00e8");  // shares the first byte of the stop string
  EXPECT_EQ(matcher.Append("\u00e9"), "");
  EXPECT_EQ(matcher.Append("?"), "\u00e9?");
}

TEST(StopMatcherTest, WithoutStopStringsPassesEverything) {
  StopMatcher matcher({});

  EXPECT_EQ(matcher.Append("anything"), "anything");
  EXPECT_EQ(matcher.Flush(), "");
  EXPECT_FALSE(matcher.stopped());
}

}  // namespace
}  // namespace baton::text
