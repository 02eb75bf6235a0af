#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/time/civil_time.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/text/support.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

using testing::Json;

// The moment of the golden data, 2025-01-15T09:30:00 without a zone.
class ChatTemplateTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> RenderWith(const ChatTemplate& chat_template, const Json& variables) {
    std::map<std::string, jinja::Value> values;
    for (const auto& [name, value] : variables.items()) values[name] = ToValue(value);
    return chat_template.RenderWith(values, clock_, absl::UTCTimeZone());
  }

  absl::StatusOr<std::string> RenderSource(std::string_view source, const Json& variables = {}) {
    auto compiled = ChatTemplate::Compile(source, {});
    if (!compiled.ok()) return compiled.status();
    return RenderWith(**compiled, variables);
  }

  static jinja::Value ToValue(const Json& json) {
    auto value = jinja::ParseJson(json.dump());
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? *value : jinja::Value();
  }

  // Renders a golden conversation; `line` has messages, tools and kwargs.
  absl::StatusOr<std::string> RenderLine(const ChatTemplate& chat_template, const Json& line) {
    ChatTemplateInput input;
    input.messages = ToValue(line["messages"]);
    input.tools = ToValue(line.value("tools", Json()));
    const Json kwargs = line.value("kwargs", Json::object());
    for (const auto& [name, value] : kwargs.items()) {
      if (name == "add_generation_prompt") {
        input.add_generation_prompt = value.get<bool>();
      } else if (name == "documents") {
        input.documents = ToValue(value);
      } else {
        input.extra[name] = ToValue(value);
      }
    }
    return chat_template.Render(input, clock_, absl::UTCTimeZone());
  }

  static void ExpectOutcome(const absl::StatusOr<std::string>& rendered, const Json& expected) {
    if (expected.contains("rendered")) {
      ASSERT_TRUE(rendered.ok()) << rendered.status();
      EXPECT_EQ(*rendered, expected["rendered"].get<std::string>());
      return;
    }
    ASSERT_FALSE(rendered.ok()) << *rendered;
    if (expected["error"]["kind"] == "raise_exception") {
      EXPECT_EQ(rendered.status().message(), expected["error"]["message"].get<std::string>());
    }
  }

  FakeClock clock_{absl::FromCivil(absl::CivilSecond(2025, 1, 15, 9, 30, 0), absl::UTCTimeZone())};
};

TEST_F(ChatTemplateTest, RendersTheGoldenSnippets) {
  for (const Json& line : testing::ReadGolden("chat_templates/snippets.jsonl")) {
    SCOPED_TRACE(line["name"].get<std::string>() + ": " + line["template"].get<std::string>());
    ExpectOutcome(RenderSource(line["template"].get<std::string>(), line["context"]), line);
  }
}

TEST_F(ChatTemplateTest, RendersSmolLm2sConversations) {
  const checkpoint::TextAssets* assets = testing::SmolLm2Assets();
  if (assets == nullptr) return;
  auto compiled = ChatTemplate::Compile(*assets->chat_template, assets->special_tokens);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (const Json& line : testing::ReadGolden("chat_templates/smollm2.jsonl")) {
    SCOPED_TRACE(line["case"].get<std::string>());
    ExpectOutcome(RenderLine(**compiled, line), line.contains("plain") ? line["plain"] : line);
  }
}

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
      const auto prompt = RenderLine(**compiled, line);
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

TEST_F(ChatTemplateTest, BoundsWhatARunMayUse) {
  for (const std::string_view source : {
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{{ 'x' * 1000000000000 }}",
           "{{ [0] * 1000000000000 }}",
           "{{ '%1000000000000d' % 1 }}",
           "{{ '{:1000000000000}'.format(1) }}",
           "{{ 'x' | center(1000000000000) }}",
           "{{ 'x'.zfill(1000000000000) }}",
           "{{ 'a' | indent(1000000000000, true) }}",
           "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(99) %}"
           "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
           "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}"
           "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
           "{% set ns = namespace(x=[]) %}{% for i in range(150) %}"
           "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
           "{% set t = namespace(x='x' * 1000000) %}{% for i in range(9999) %}{{ t.x }}{% endfor "
           "%}",
           "{{ 9223372036854775807 + 1 }}",
           "{{ 2 ** 64 }}",
       }) {
    SCOPED_TRACE(std::string(source));

    const auto rendered = RenderSource(source);

    EXPECT_EQ(rendered.status().code(), absl::StatusCode::kResourceExhausted) << rendered.status();
  }
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

TEST_F(ChatTemplateTest, ReachesNothingOutsideItsInputs) {
  for (const std::string_view source : {
           "{{ ''.__class__.__mro__ }}",
           "{{ x.__init__.__globals__ }}",
           "{{ [].append(1) }}",
           "{{ {}.update({}) }}",
           "{{ '{0.__class__}'.format(1) }}",
           "{{ range(100001) }}",
       }) {
    SCOPED_TRACE(std::string(source));
    EXPECT_FALSE(RenderSource(source, {{"x", 1}}).ok());
  }
}

TEST_F(ChatTemplateTest, NamesTheLineOfAnErrorInTheRun) {
  const auto rendered = RenderSource("a\nb{{ 1 + 'x' }}");

  EXPECT_EQ(std::string(rendered.status().message()).substr(0, 23), "chat template, line 2: ");
}

TEST_F(ChatTemplateTest, KnowsWhetherATemplateLooksIntoContentParts) {
  const auto compile = [](std::string_view source) { return *ChatTemplate::Compile(source, {}); };

  EXPECT_FALSE(
      compile("{% for m in messages %}{{ m.content }}{% endfor %}")->accepts_content_parts());
  EXPECT_FALSE(compile("{% for m in messages %}{{ m.content | trim }}{% endfor %}")
                   ->accepts_content_parts());
  EXPECT_FALSE(
      compile("{% for m in messages %}{{ 'x' + m.content }}{% endfor %}")->accepts_content_parts());
  EXPECT_TRUE(compile("{% for m in messages %}{% if m.content is string %}{{ m.content }}"
                      "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
                      "{% endfor %}")
                  ->accepts_content_parts());
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
