#include "text/chat_template_traits.h"

#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace baton::text {
namespace {

using CallContent = ChatTemplateTraits::CallContent;

// The traits of a template that writes every message by `body`.
ChatTemplateTraits TraitsOf(std::string_view body) {
  const auto compiled = ChatTemplate::Compile(
      "{% for m in messages %}" + std::string(body) + "{% endfor %}", {{"eos_token", "</s>"}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? (*compiled)->traits() : ChatTemplateTraits();
}

TEST(ChatTemplateTraitsTest, KnowsWhetherContentPartsAreLookedInto) {
  EXPECT_FALSE(TraitsOf("{{ m.content }}").takes_content_parts);
  EXPECT_FALSE(TraitsOf("{{ m.content | trim }}").takes_content_parts);
  EXPECT_FALSE(TraitsOf("{{ m.content | tojson }}").takes_content_parts);
  EXPECT_FALSE(TraitsOf("{{ 'x' + m.content }}").takes_content_parts);
  const ChatTemplateTraits both = TraitsOf(
      "{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}");
  EXPECT_TRUE(both.takes_content_parts);
  EXPECT_TRUE(both.takes_text_content);
  const ChatTemplateTraits parts_only = TraitsOf(
      "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}"
      "{% endfor %}{{ eos_token }}");
  EXPECT_TRUE(parts_only.takes_content_parts);
  EXPECT_FALSE(parts_only.takes_text_content);
  EXPECT_EQ(parts_only.after_answer, "</s>");
}

TEST(ChatTemplateTraitsTest, KnowsTheFormOfArguments) {
  const auto as_text = [](const std::string& arguments) {
    return TraitsOf("{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}" + arguments +
                    "{% endfor %}")
        .takes_call_arguments_as_text;
  };

  EXPECT_FALSE(as_text("{{ c.function.arguments | tojson }}"));
  EXPECT_FALSE(
      as_text("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}"));
  EXPECT_FALSE(
      as_text("{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
              "{{ c.function.arguments | tojson }}{% endif %}"));
  EXPECT_FALSE(as_text(""));
  EXPECT_TRUE(as_text("{{ c.function.arguments }}"));
  EXPECT_TRUE(as_text("{{ 'x' + c.function.arguments }}"));
}

TEST(ChatTemplateTraitsTest, KnowsTheContentOfAMessageWithCalls) {
  const std::string calls =
      "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
      "{% endfor %}";
  EXPECT_EQ(TraitsOf("{{ m.content + 'x' }}" + calls).call_content, CallContent::kEmpty);
  EXPECT_EQ(TraitsOf("{% if m.content is none %}" + calls + "{% else %}{{ m.content }}{% endif %}")
                .call_content,
            CallContent::kNone);
  EXPECT_EQ(TraitsOf("{% if 'content' in m %}{{ m.content }}{% else %}" + calls + "{% endif %}")
                .call_content,
            CallContent::kAbsent);
  EXPECT_EQ(TraitsOf("{{ m.content }}").call_content, CallContent::kEmpty);
}

TEST(ChatTemplateTraitsTest, KnowsWhetherDevelopersAreKnown) {
  EXPECT_FALSE(TraitsOf("<{{ m.role }}>{{ m.content }}").knows_developer_role);
  EXPECT_FALSE(TraitsOf("{% if m.role in ['system', 'user'] %}{{ m.content }}{% endif %}")
                   .knows_developer_role);
  EXPECT_FALSE(TraitsOf("{% if m.role == 'developer' %}{{ raise_exception('no') }}{% endif %}"
                        "{{ m.content }}")
                   .knows_developer_role);
  EXPECT_TRUE(TraitsOf("{% if m.role in ['system', 'developer'] %}[SYS]{% endif %}{{ m.content }}")
                  .knows_developer_role);
}

TEST(ChatTemplateTraitsTest, FindsWhatFollowsAnAnswer) {
  EXPECT_EQ(TraitsOf("<{{ m.role }}>{{ m.content }}<|end|>\n").after_answer, "<|end|>\n");
  EXPECT_EQ(TraitsOf("{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}"
                     " {{ m.content }} {{ eos_token }}{% endif %}")
                .after_answer,
            " </s>");
  EXPECT_EQ(TraitsOf("{{ m.content }}").after_answer, "");
  // The last message stays open.
  EXPECT_EQ(TraitsOf("{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}"
                     "{{ m.content }}{% if not loop.last %}{{ eos_token }}{% endif %}{% endif %}")
                .after_answer,
            "</s>[INST]");
  // What opens a question is no end of an answer.
  EXPECT_EQ(TraitsOf("<|{{ m.role }}|>{{ m.content }}").after_answer, "");
}

TEST(ChatTemplateTraitsTest, ATemplateThatFailsOnEverythingHasTheUsualTraits) {
  const ChatTemplateTraits traits = TraitsOf("{{ raise_exception('no') }}");

  EXPECT_FALSE(traits.takes_content_parts);
  EXPECT_TRUE(traits.takes_text_content);
  EXPECT_EQ(traits.call_content, CallContent::kEmpty);
  EXPECT_FALSE(traits.takes_call_arguments_as_text);
  EXPECT_EQ(traits.after_answer, "");
}

}  // namespace
}  // namespace baton::text
