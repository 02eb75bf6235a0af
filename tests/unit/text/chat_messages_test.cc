#include "text/chat_messages.h"

#include <gtest/gtest.h>

#include <string>

namespace baton::text {
namespace {

using CallContent = ChatTemplateTraits::CallContent;

// One message through FitMessages, as JSON.
std::string Fit(const std::string& message, const ChatTemplateTraits& traits = {}) {
  const auto value = jinja::ParseJson("[" + message + "]");
  EXPECT_TRUE(value.ok()) << value.status();
  if (!value.ok()) return "";
  const auto json = jinja::DumpJson(FitMessages(*value, traits).items().at(0));
  EXPECT_TRUE(json.ok()) << json.status();
  return json.value_or("");
}

TEST(ChatMessagesTest, LeavesAloneWhatFits) {
  const std::string message =
      R"({"z": 1, "role": "user", "content": " a\n", "a": {"y": 1.0, "x": null}, "name": "n"})";

  EXPECT_EQ(Fit(message), message);
}

TEST(ChatMessagesTest, DropsKeysWithoutAValue) {
  EXPECT_EQ(Fit(R"({"role": "assistant", "name": null, "content": "a", "tool_calls": null,
                    "refusal": null})"),
            R"({"role": "assistant", "content": "a"})");
  EXPECT_EQ(Fit(R"({"role": "assistant", "content": "a", "tool_calls": []})"),
            R"({"role": "assistant", "content": "a"})");
}

TEST(ChatMessagesTest, GivesContentToMessagesWithout) {
  EXPECT_EQ(Fit(R"({"role": "user"})"), R"({"role": "user", "content": ""})");
  EXPECT_EQ(Fit(R"({"content": null, "role": "tool"})"), R"({"role": "tool", "content": ""})");
}

TEST(ChatMessagesTest, GivesMessagesWithCallsTheContentThatTheTemplateWants) {
  const std::string with_none = R"({"role": "assistant", "content": null, "tool_calls": [1]})";
  const std::string with_empty = R"({"role": "assistant", "content": "", "tool_calls": [1]})";
  const std::string with_text = R"({"role": "assistant", "content": "a", "tool_calls": [1]})";
  const std::string without = R"({"role": "assistant", "tool_calls": [1]})";

  EXPECT_EQ(Fit(without), R"({"role": "assistant", "tool_calls": [1], "content": ""})");
  EXPECT_EQ(Fit(with_none), R"({"role": "assistant", "tool_calls": [1], "content": ""})");
  for (const std::string& message : {without, with_none, with_empty}) {
    EXPECT_EQ(Fit(message, {.call_content = CallContent::kNone}),
              R"({"role": "assistant", "tool_calls": [1], "content": null})");
    EXPECT_EQ(Fit(message, {.call_content = CallContent::kAbsent}), without);
  }
  EXPECT_EQ(Fit(with_text, {.call_content = CallContent::kNone}), with_text);
}

TEST(ChatMessagesTest, JoinsPartsForTemplatesThatTakeStrings) {
  const std::string parts =
      R"({"role": "user", "content": [{"type": "text", "text": "a"}, "", {"type": "text", "text": "b"}]})";

  EXPECT_EQ(Fit(parts), R"({"role": "user", "content": "a\n\nb"})");
  EXPECT_EQ(Fit(R"({"role": "user", "content": []})"), R"({"role": "user", "content": ""})");
}

TEST(ChatMessagesTest, MakesPartsForTemplatesThatTakeThem) {
  const ChatTemplateTraits both = {.takes_content_parts = true};
  const ChatTemplateTraits parts_only = {.takes_content_parts = true, .takes_text_content = false};
  const std::string text = R"({"role": "user", "content": "a"})";
  const std::string part = R"({"role": "user", "content": [{"type": "text", "text": "a"}]})";

  EXPECT_EQ(Fit(text, both), text);
  EXPECT_EQ(Fit(R"({"role": "user", "content": ["a"]})", both), part);
  EXPECT_EQ(Fit(text, parts_only), part);
}

TEST(ChatMessagesTest, TurnsArgumentsIntoTheFormThatTheTemplateTakes) {
  const auto call = [](const std::string& arguments) {
    return R"({"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"arguments": )" +
           arguments + R"(, "name": "f"}}]})";
  };

  EXPECT_EQ(Fit(call(R"("{\"b\":1.0,\"a\":[1e-7,12345678901234567890]}")")),
            call(R"({"b": 1.0, "a": [1e-07, 12345678901234567890]})"));
  EXPECT_EQ(Fit(call(R"("")")), call("{}"));
  for (const char* no_object : {R"("{\"a\":")", R"("5")", R"("[1]")", "5", R"({"a": 1})"}) {
    EXPECT_EQ(Fit(call(no_object)), call(no_object));
  }
  const ChatTemplateTraits as_text = {.takes_call_arguments_as_text = true};
  EXPECT_EQ(Fit(call(R"({"a": "b"})"), as_text), call(R"("{\"a\": \"b\"}")"));
  EXPECT_EQ(Fit(call(R"("{\"a\":1}")"), as_text), call(R"("{\"a\":1}")"));
}

TEST(ChatMessagesTest, LeavesCallsOfOtherShapesAlone) {
  const std::string message =
      R"({"role": "assistant", "content": "", "tool_calls": [1, {"function": 5}, {"function": {}}]})";

  EXPECT_EQ(Fit(message), message);
}

TEST(ChatMessagesTest, GivesReasoningAllItsNames) {
  const std::string all =
      R"({"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r", "thinking": "r"})";

  EXPECT_EQ(Fit(R"({"role": "assistant", "content": "a", "reasoning": "r"})"), all);
  EXPECT_EQ(
      Fit(R"({"role": "assistant", "content": "a", "reasoning": "r", "thinking": "t"})"),
      R"({"role": "assistant", "content": "a", "reasoning": "r", "thinking": "t", "reasoning_content": "r"})");
}

TEST(ChatMessagesTest, CallsDevelopersSystemWhereTheTemplateDoesNotKnowThem) {
  const std::string developer = R"({"role": "developer", "content": "a"})";

  EXPECT_EQ(Fit(developer), R"({"role": "system", "content": "a"})");
  EXPECT_EQ(Fit(developer, {.knows_developer_role = true}), developer);
}

}  // namespace
}  // namespace baton::text
