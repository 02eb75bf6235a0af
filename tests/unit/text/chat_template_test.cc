#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/support/fake_clock.h"
#include "tests/unit/text/chat_template_support.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

using testing::Json;

class ChatTemplateTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> RenderWith(const ChatTemplate& chat_template, const Json& variables) {
    std::map<std::string, jinja::Value> values;
    for (const auto& [name, value] : variables.items()) values[name] = testing::ToValue(value);
    return chat_template.RenderWith(values, clock_, absl::UTCTimeZone());
  }

  absl::StatusOr<std::string> RenderSource(std::string_view source, const Json& variables = {}) {
    auto compiled = ChatTemplate::Compile(source, {});
    if (!compiled.ok()) return compiled.status();
    return RenderWith(**compiled, variables);
  }

  FakeClock clock_{testing::GoldenMoment()};
};

// Template and tokenizer together give the ids that the reference model was fed.
TEST_F(ChatTemplateTest, GivesTheReferencesPromptIdsForChats) {
  for (const auto& [file, assets] : {std::pair("tiny/greedy.jsonl", &testing::TinyAssets()),
                                     std::pair("smollm2/greedy.jsonl", testing::SmolLm2Assets())}) {
    if (assets == nullptr) continue;
    auto compiled = ChatTemplate::Compile(*assets->chat_template, assets->special_tokens);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    auto tokenizer = Tokenizer::Create(*assets);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    int num_chats = 0;
    for (const Json& line : testing::ReadGolden(file)) {
      if (line["kind"] != "chat") continue;
      SCOPED_TRACE(line["id"].get<std::string>());
      const auto prompt = (*compiled)->Render(testing::ToInput(line), clock_, absl::UTCTimeZone());
      ASSERT_TRUE(prompt.ok()) << prompt.status();
      EXPECT_EQ((*tokenizer)->Encode(*prompt), line["prompt_ids"].get<std::vector<int>>());
      ++num_chats;
    }
    EXPECT_GT(num_chats, 0) << file;
  }
}

TEST_F(ChatTemplateTest, RefusesAtCompileTimeWithLineAndColumn) {
  struct Case {
    std::string_view source;
    absl::StatusCode code;
    std::string_view place;
  };
  for (const Case& c : {
           Case{"a\n{{ x | nope }}", absl::StatusCode::kFailedPrecondition, "line 2, column 8: "},
           Case{"{% if x is nope %}{% endif %}", absl::StatusCode::kFailedPrecondition,
                "line 1, column 12: "},
           Case{"\u00e9{{ nope(1) }}", absl::StatusCode::kFailedPrecondition, "line 1, column 5: "},
           Case{"{% include 'x' %}", absl::StatusCode::kFailedPrecondition, "line 1, column 4: "},
           Case{"{{ x | map('nope') }}", absl::StatusCode::kFailedPrecondition,
                "line 1, column 12: "},
           Case{"{{ x", absl::StatusCode::kInvalidArgument, "line 1, column 1: "},
           Case{"{{ (1 }}", absl::StatusCode::kInvalidArgument, "line 1, column 7: "},
           Case{"x\n{% endif %}", absl::StatusCode::kInvalidArgument, "line 2, column 4: "},
           Case{"{% break %}", absl::StatusCode::kInvalidArgument, "line 1, column 4: "},
       }) {
    SCOPED_TRACE(std::string(c.source));

    const auto compiled = ChatTemplate::Compile(c.source, {});

    EXPECT_EQ(compiled.status().code(), c.code) << compiled.status();
    EXPECT_EQ(std::string(compiled.status().message()).substr(0, c.place.size()), c.place)
        << compiled.status();
  }
}

TEST_F(ChatTemplateTest, AcceptsAFunctionThatTheTemplateAsksFor) {
  const auto rendered =
      RenderSource("{% if nope is defined %}{{ nope() }}{% else %}without{% endif %}");

  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(*rendered, "without");
}

TEST_F(ChatTemplateTest, FreesValuesThatHoldOneAnother) {
  const auto rendered = RenderSource(
      "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = [b] %}"
      "{% for i in [1] %}{{ loop.changed(loop) }}{% set a.l = loop %}{% endfor %}"
      "{% macro m() %}{{ a.m }}{% endmacro %}{% set a.m = m %}"
      "{% set c = namespace(x=none) %}{% for i in range(9999) %}"
      "{% set c.x = namespace(x=c.x) %}{% endfor %}ok");

  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(*rendered, "Trueok");
}

TEST_F(ChatTemplateTest, NamesTheLineOfAnErrorInTheRun) {
  const auto rendered = RenderSource("a\nb{{ 1 + 'x' }}");

  EXPECT_EQ(std::string(rendered.status().message()).substr(0, 23), "chat template, line 2: ");
}

TEST_F(ChatTemplateTest, SpecialTokensAndExtraVariablesAreSeen) {
  auto compiled =
      ChatTemplate::Compile("{{ bos_token }}{{ mode }}{{ tools is none }}", {{"bos_token", "<s>"}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ChatTemplateInput input;
  input.extra["mode"] = jinja::Value::String("fast");

  const auto rendered = (*compiled)->Render(input, clock_);

  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(*rendered, "<s>fastTrue");
}

}  // namespace
}  // namespace baton::text
