#include "text/tokenizer/regex.h"

#include <gtest/gtest.h>

#include <string>

namespace baton::text {
namespace {

// The letters can be cut into ones and twos in nine million ways, and none of them matches: more
// steps than PCRE takes by default.
TEST(RegexTest, FindsWhatTakesMoreStepsThanUsual) {
  const auto regex = Regex::CompileForPcre("^(?:a|aa)*b|z");
  ASSERT_TRUE(regex.ok()) << regex.status();

  const auto match = regex->Find(std::string(34, 'a') + "zb", 0);

  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->begin, 34u);
}

}  // namespace
}  // namespace baton::text
