#include "text/chat_template_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/unit/text/chat_template_support.h"

namespace baton::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kChatml[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

class ChatTemplateSetTest : public ::testing::Test {
 protected:
  static std::unique_ptr<const ChatTemplateSet> Make(
      const std::string& source, std::map<std::string, std::string> named = {}) {
    checkpoint::TextAssets assets;
    if (!source.empty()) assets.chat_template = source;
    assets.named_chat_templates = std::move(named);
    auto set = ChatTemplateSet::Create(assets);
    EXPECT_TRUE(set.ok()) << set.status();
    return set.ok() ? *std::move(set) : nullptr;
  }
  static ChatTemplateInput Input(const char* messages) {
    ChatTemplateInput input;
    input.messages = testing::ToValue(testing::Json::parse(messages));
    return input;
  }
  absl::StatusOr<std::string> Render(const ChatTemplateSet& set, const ChatTemplateInput& input) {
    return set.Render(input, clock_, absl::UTCTimeZone());
  }
  // Goes on with `content`.
  absl::StatusOr<std::string> Continue(const std::string& source, const testing::Json& content) {
    ChatTemplateInput input;
    input.messages = testing::ToValue(testing::Json::array(
        {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", content}}}));
    input.continue_final_message = true;
    return Render(*Make(source), input);
  }

  FakeClock clock_{testing::GoldenMoment()};
};

TEST_F(ChatTemplateSetTest, AModelMayHaveNone) {
  const auto set = ChatTemplateSet::Create({});

  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(*set, nullptr);
}

TEST_F(ChatTemplateSetTest, TakesTheTemplateForToolsWhenThereAreSome) {
  const auto set = Make("default", {{"tool_use", "tools"}, {"rag", "documents"}});
  ChatTemplateInput input = Input("[]");
  EXPECT_EQ(*Render(*set, input), "default");

  input.tools = testing::ToValue({{{"name", "f"}}});
  EXPECT_EQ(*Render(*set, input), "tools");

  input.template_name = "rag";
  EXPECT_EQ(*Render(*set, input), "documents");

  input.template_name = "other";
  EXPECT_EQ(Render(*set, input).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Render(*set, input).status().message(),
              HasSubstr("'other'; it has: default, rag, tool_use"));
}

TEST_F(ChatTemplateSetTest, ToolsGoToTheOnlyTemplateThereIs) {
  const auto set = Make("{{ tools | length }}");
  ChatTemplateInput input = Input("[]");
  input.tools = testing::ToValue({{{"name", "f"}}});

  EXPECT_EQ(*Render(*set, input), "1");
}

TEST_F(ChatTemplateSetTest, NamesTheTemplateThatDoesNotCompile) {
  checkpoint::TextAssets assets;
  assets.chat_template = "a";
  assets.named_chat_templates["rag"] = "a\n{{ x | nope }}";

  const absl::Status status = ChatTemplateSet::Create(assets).status();

  EXPECT_THAT(status.message(), HasSubstr("template 'rag': line 2, column 8: "));
}

TEST_F(ChatTemplateSetTest, FitsMessagesToTheTemplate) {
  const auto set = Make(kChatml);

  EXPECT_EQ(*Render(*set, Input(R"([{"role": "developer", "content": ["a", "b"]},
                                    {"role": "user", "content": "c"}])")),
            "<system>a\nb</system><user>c</user><assistant>");
}

TEST_F(ChatTemplateSetTest, ContinuesTheLastMessage) {
  EXPECT_EQ(*Continue(kChatml, "Once upon"), "<user>q</user><assistant>Once upon");
  EXPECT_EQ(*Continue(kChatml, "Once "), "<user>q</user><assistant>Once ");
  EXPECT_EQ(*Continue(kChatml, ""), "<user>q</user><assistant>");
  EXPECT_EQ(*Continue(kChatml, testing::Json::array({"a", "b"})), "<user>q</user><assistant>a\nb");
}

TEST_F(ChatTemplateSetTest, ContinuesTrimmedWhereTheTemplateTrims) {
  const std::string trims =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}";

  EXPECT_EQ(*Continue(trims, " Once "), "<user>q</s><assistant>Once");
}

TEST_F(ChatTemplateSetTest, ContinuesTheLastTextPart) {
  const std::string parts =
      "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}{{ p.text }};{% endfor %}{% endif %}</s>{% endfor %}";

  EXPECT_EQ(*Continue(parts, testing::Json::array({"a", "b"})), "<user>q</s><assistant>a;b");
}

TEST_F(ChatTemplateSetTest, RefusesToContinueNothing) {
  const auto set = Make(kChatml);
  for (const char* messages :
       {"[]", R"([{"role": "user", "content": "a"}])",
        R"([{"role": "assistant", "content": "a"}, {"role": "user", "content": "a"}])"}) {
    ChatTemplateInput input = Input(messages);
    input.continue_final_message = true;

    const auto prompt = Render(*set, input);

    EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument) << messages;
    EXPECT_THAT(prompt.status().message(), HasSubstr("continue_final_message: ")) << messages;
  }
  EXPECT_EQ(Continue("{{ messages[0].content }}", "lost").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ChatTemplateSetTest, EndsAreSingleMarksOnly) {
  const Tokenizer& tokenizer = testing::TinyTokenizer();
  const auto ends = [&tokenizer](const std::string& after) {
    return Make("{% for m in messages %}{{ m.content }}" + after + "{% endfor %}")
        ->EndIds(tokenizer);
  };

  EXPECT_THAT(ends("<|end|>"), ElementsAre(*tokenizer.TokenId("<|end|>")));
  EXPECT_THAT(ends(" \n<|end|>\n"), ElementsAre(*tokenizer.TokenId("<|end|>")));
  EXPECT_THAT(ends(""), IsEmpty());
  EXPECT_THAT(ends("\n"), IsEmpty());
  EXPECT_THAT(ends("."), IsEmpty());
  EXPECT_THAT(ends("the end"), IsEmpty());
  EXPECT_THAT(ends("<|nothing of ours|>"), IsEmpty());
}

}  // namespace
}  // namespace baton::text
